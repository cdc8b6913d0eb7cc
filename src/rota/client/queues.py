"""Calls on queues: read, count and limit them; pause and resume one or everything."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from rota.client.base import Namespace, check_texts, check_who
from rota.client.both import awaitable, both, both_atomic
from rota.declare.options import MAX_RUNNING_MAX
from rota.errors import UsageError
from rota.model.bounds import COUNT_MAX, check_aware, check_bool, check_integer, check_queue
from rota.model.metric import Metric
from rota.model.units import Duration, seconds
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import ConcurrencyLimit, Pause, QueueDepth, Stats

LASTS_S_MIN = 0.001
HOURS_MAX = 24 * 31
"""Most hours of statistics in one answer."""


class Queues(Namespace):
    """`app.queues`: reads, limits, pauses and resumes queues.

    `why` and `by` are as in `app.cancel`.
    """

    @both
    def list(self) -> Operation[builtins.list[QueueDepth]]:
        """List the queues and priorities that have due or future jobs, with their numbers."""
        return ops.ask_rows(QueueDepth, "queues_list", limit=COUNT_MAX)

    alist = awaitable(list)

    @both
    def stats(
        self, *, hours: int = 24, job_type: str | None = None, queue: str | None = None
    ) -> Operation[Stats]:
        """Return the current number of jobs by status, and statistics of the last hours.

        The call reads no history, and counts up to 10,000 jobs of each status.

        Args:
            hours: hours of statistics, 1 … 744, including the current hour. Defaults to 24.
            job_type: statistics of this type only; counts by status and the oldest due job are
                always of all jobs. Defaults to all types.
            queue: statistics of this queue only, in the same way. Defaults to all queues.
        """
        check_integer(hours, "hours", 1, HOURS_MAX)
        check_texts(job_type=job_type, queue=queue)
        return ops.stats(hours, job_type, queue)

    astats = awaitable(stats)

    @both
    def metrics(self) -> Operation[builtins.list[Metric]]:
        """Read the gauges of the database: due, running, dead and blocked jobs, breakers, workers,
        sizes of tables, and what holds vacuum up. Counts up to 10,000 jobs of each kind, and reads
        up to 100 queues, breakers and tables."""
        return ops.read_metrics()

    ametrics = awaitable(metrics)

    @both
    def concurrency_limits(self) -> Operation[builtins.list[ConcurrencyLimit]]:
        """List the limits of queues and job types: how many jobs run, and how many wait."""
        return ops.ask_rows(ConcurrencyLimit, "concurrency_limits_list")

    aconcurrency_limits = awaitable(concurrency_limits)

    @both_atomic
    def set_max_running(
        self,
        name: str,
        max_running: int | None,
        *,
        why: str | None = None,
        by: str | None = None,
        force: bool = False,
    ) -> Operation[int | None]:
        """Set how many jobs of a queue may run at once, over all workers; return the number before.

        The limit holds from the next claim on; running jobs continue.

        Args:
            max_running: 1 … 100,000; None: as many as the workers have slots.
            force: even if no job, type or worker has the queue.
        """
        queue = check_queue(name, "a queue's name")
        if max_running is not None:
            _check_max_running(max_running)
        who = self._check_who(queue, why, by, force)
        return ops.ask("queue_set_max_running", queue=queue, max_running=max_running, **who)

    aset_max_running = awaitable(set_max_running)

    @both
    def pause(
        self,
        name: str,
        *,
        duration: Duration | None = None,
        until: datetime | None = None,
        why: str | None = None,
        by: str | None = None,
        force: bool = False,
    ) -> Operation[Pause]:
        """Pause a queue: no claim that begins after this call returns takes a job from it.

        Running jobs and enqueueing continue; retries wait until the pause ends. A second pause
        replaces the end, `why` and `by`.

        Args:
            duration: how long the pause lasts, by the database's clock. Defaults to no end.
            until: when the pause ends: an aware datetime. Not together with `duration`.
            force: even if no job, type or worker has the queue.

        Raises:
            UsageError: the name, `why` or `by` cannot be stored, nobody knows the queue, `until`
                has passed, or both `until` and `duration` are given.
        """
        queue = check_queue(name, "a queue's name")
        ends, who = check_lasting(duration, until), self._check_who(queue, why, by, force)
        return ops.ask_row(Pause, "queue_pause_for", queue=queue, **ends, **who)

    apause = awaitable(pause)

    @both
    def resume(
        self, name: str, *, why: str | None = None, by: str | None = None, force: bool = False
    ) -> Operation[bool]:
        """Resume a queue; return whether it was paused. Nothing is written for a queue without a
        pause. `force` and errors are as in `pause`."""
        queue = check_queue(name, "a queue's name")
        return ops.ask("queue_resume", queue=queue, **self._check_who(queue, why, by, force))

    aresume = awaitable(resume)

    @both
    def pause_all(
        self,
        *,
        duration: Duration | None = None,
        until: datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[Pause]:
        """Pause everything: no claim that begins after this call returns takes a job, and no
        schedule fires. Arguments and errors are as in `pause`."""
        ends = check_lasting(duration, until)
        return ops.ask_row(Pause, "pause_all_for", **ends, **check_who(why, by))

    apause_all = awaitable(pause_all)

    @both
    def resume_all(self, *, why: str | None = None, by: str | None = None) -> Operation[bool]:
        """End a pause of everything; return whether everything was paused. Queues paused by name
        stay paused."""
        return ops.ask("resume_all", **check_who(why, by))

    aresume_all = awaitable(resume_all)

    @both
    def resume_copy(self, *, why: str | None = None, by: str | None = None) -> Operation[bool]:
        """Allow a restored copy of a database to run jobs and schedules; return whether it was a
        copy."""
        return ops.ask("resume_copy", **check_who(why, by))

    aresume_copy = awaitable(resume_copy)

    @both
    def pauses(self) -> Operation[builtins.list[Pause]]:
        """List the current pauses. A pause of everything comes first, with None as its queue."""
        return ops.ask_rows(Pause, "pauses")

    apauses = awaitable(pauses)

    def _check_who(
        self, queue: str, why: str | None, by: str | None, force: bool
    ) -> dict[str, Any]:
        """Return who acts, and whether the database takes a queue that it does not know: the App
        may have declared a type for it that no deploy has written."""
        is_sure = check_bool(force, "force") or self._caller._declares_queue(queue)
        return {**check_who(why, by), "force": is_sure}


def _check_max_running(value: int) -> None:
    try:
        check_integer(value, "max_running", 1, MAX_RUNNING_MAX)
    except UsageError as error:
        raise UsageError(f"{error}; to run none, pause the queue") from None


def check_lasting(duration: Duration | None, until: datetime | None) -> dict[str, Any]:
    """Return the parameters of an end: an instant, or seconds by the database's clock; never, if
    both are None. Raises UsageError."""
    if duration is not None and until is not None:
        raise UsageError("give duration or until, not both")
    least = LASTS_S_MIN
    for_s = None if duration is None else seconds(duration, name="duration", least=least)
    return {"until": None if until is None else check_aware(until, "until"), "for_s": for_s}
