"""Calls on queues: read and cap them; pause and resume one or everything."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING

from rota.client.base import Namespace, check_by, check_why
from rota.client.both import awaitable, both, both_atomic
from rota.declare.options import MAX_RUNNING_MAX
from rota.errors import UsageError
from rota.model.bounds import check_aware, check_integer, check_queue
from rota.model.units import Duration, seconds
from rota.store import ops
from rota.store.ops import Cap, Pause, QueueDepth, Until

if TYPE_CHECKING:
    from rota.store.driver import Operation

PAUSE_S_MIN = 0.001


class Queues(Namespace):
    """`app.queues`: reads, caps, pauses and resumes queues.

    The action log records the reason, `why` (one line of at most 500 characters), and the person
    or program that acts, `by` (at most 200; defaults to `user@host` of this process).
    """

    @both
    def list(self) -> Operation[builtins.list[QueueDepth]]:
        """List the queues and priorities that have due or future jobs, with their numbers."""
        return ops.read_queues()

    alist = awaitable(list)

    @both
    def caps(self) -> Operation[builtins.list[Cap]]:
        """List the caps of queues and job types: how many jobs run, and how many wait for that."""
        return ops.read_caps()

    acaps = awaitable(caps)

    @both_atomic
    def set_max_running(
        self,
        name: str,
        max_running: int | None,
        *,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[int | None]:
        """Set how many jobs of a queue may run at once, over all workers; return the number before.

        It holds from the next claim on. Jobs that run continue, also those beyond a lower number.
        The queue may be one that never had a job.

        Args:
            max_running: 1 … 100,000; None: as many as the workers have slots.
            why: recorded with the action.
            by: the person or program that acts.

        Raises:
            UsageError: the name, the number, `why` or `by` cannot be stored.
        """
        queue = check_queue(name, "a queue's name")
        if max_running is not None:
            _check_max_running(max_running)
        return ops.set_max_running(queue, max_running, check_why(why), check_by(by))

    aset_max_running = awaitable(set_max_running)

    @both
    def pause(
        self,
        name: str,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[Pause]:
        """Pause a queue: no claim that begins after this call returns takes a job from it.

        Running jobs continue, and enqueueing continues. Retries wait until the pause ends. The
        queue may be one that never had a job. If it is paused already, the new `until`, `why` and
        `by` apply.

        Args:
            until: when the pause ends by itself: a duration from now, by the database's clock, or
                an aware instant. Defaults to never.
            why: recorded with the queue and with the action.
            by: the person or program that acts.

        Raises:
            UsageError: the name, `why` or `by` cannot be stored, or `until` has passed.
        """
        queue = check_queue(name, "a queue's name")
        return ops.pause_queue(queue, parse_until(until), check_why(why), check_by(by))

    apause = awaitable(pause)

    @both
    def resume(
        self, name: str, *, why: str | None = None, by: str | None = None
    ) -> Operation[bool]:
        """Resume a queue; return whether it was paused. If it was not, nothing is written.

        Raises:
            UsageError: the name, `why` or `by` cannot be stored.
        """
        queue = check_queue(name, "a queue's name")
        return ops.resume_queue(queue, check_why(why), check_by(by))

    aresume = awaitable(resume)

    @both
    def pause_all(
        self,
        *,
        until: Duration | datetime | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[Pause]:
        """Pause everything: no claim that begins after this call returns takes a job, and no
        schedule fires. Arguments and errors are those of `pause`."""
        return ops.pause_all(parse_until(until), check_why(why), check_by(by))

    apause_all = awaitable(pause_all)

    @both
    def resume_all(self, *, why: str | None = None, by: str | None = None) -> Operation[bool]:
        """End a pause of everything; return whether there was one. Queues paused by name stay
        paused. Raises as `resume`."""
        return ops.resume_all(check_why(why), check_by(by))

    aresume_all = awaitable(resume_all)

    @both
    def resume_copy(self, *, why: str | None = None, by: str | None = None) -> Operation[bool]:
        """Allow a restored copy of a database to run jobs and schedules; return whether it was one.

        Raises:
            UsageError: `why` or `by` cannot be stored.
        """
        return ops.resume_copy(check_why(why), check_by(by))

    aresume_copy = awaitable(resume_copy)

    @both
    def pauses(self) -> Operation[builtins.list[Pause]]:
        """List the current pauses. A pause of everything comes first, with None as its queue."""
        return ops.pauses()

    apauses = awaitable(pauses)


def _check_max_running(value: int) -> None:
    try:
        check_integer(value, "max_running", 1, MAX_RUNNING_MAX)
    except UsageError as error:
        raise UsageError(f"{error}; to run none, pause the queue") from None


def parse_until(value: object) -> Until:
    """Return when a pause ends, given a duration, an aware instant, the text of either, or None for
    never. Raises UsageError."""
    if value is None:
        return Until()
    if isinstance(value, str) and (instant := _parse_instant(value)) is not None:
        value = instant
    if isinstance(value, datetime):
        return Until(at=check_aware(value, "until"))
    # `seconds` raises UsageError for a value that is no duration.
    for_s = seconds(value, name="until", least=PAUSE_S_MIN)  # type: ignore[arg-type]
    return Until(for_s=for_s)


def _parse_instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.utcoffset() is None:
        raise UsageError(
            f"until {text!r} names no time zone: "
            'write it as in "2026-11-21T18:00+01:00", or a duration such as "2h"'
        )
    return found
