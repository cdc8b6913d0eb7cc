"""Calls on schedules and on their runs."""

from __future__ import annotations

import builtins
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Unpack

import msgspec

from rota.client.base import ID_MAX, LIST_MAX, Namespace, check_who
from rota.client.both import awaitable, both, both_atomic
from rota.client.enqueue import refuse_too_large
from rota.declare.connection import AnyConnection
from rota.declare.job_type import NewJob
from rota.declare.schedule import Timing, check_schedule
from rota.errors import ScheduleNotFound, UsageError
from rota.model.bounds import NAME_MAX, check_integer
from rota.model.schedule import Due, Run, Schedule, plan
from rota.store import ops
from rota.store.driver import Operation

EVER = datetime(1, 1, 1, tzinfo=UTC)
PORTION = 1_000


class Schedules(Namespace):
    """`app.schedules`: puts, reads, pauses, resumes, triggers and deletes schedules.

    `why`, `by` and `connection` are as in `app.cancel`.
    """

    @both
    def list(self) -> Operation[builtins.list[Schedule]]:
        """List all schedules, by name."""
        return ops.schedules()

    alist = awaitable(list)

    @both
    def get(self, name: str) -> Operation[Schedule]:
        """Return a schedule. Raises ScheduleNotFound."""
        return _read(name)

    aget = awaitable(get)

    @both
    def runs(
        self, name: str, *, before: int | None = None, limit: int = 100
    ) -> Operation[builtins.list[Run]]:
        """Return the runs of a schedule, the newest first, with skipped ones.

        Runs are kept as long as history, also the runs of a deleted schedule.

        Args:
            before: only runs with a smaller job id, for the next page. Defaults to all runs.
            limit: maximum number of runs, 1 … 10,000. Defaults to 100.

        Raises:
            ScheduleNotFound: no schedule has that name, and no run of a former schedule is left.
        """
        _check_name(name)
        check_integer(limit, "limit", 1, LIST_MAX)
        if before is not None:
            check_integer(before, "before", 1, ID_MAX)
        found = yield from ops.runs(name, before, limit)
        if not found and not (yield from ops.runs(name, None, 1)):
            yield from _read(name)
        return found

    aruns = awaitable(runs)

    @both_atomic
    def put(
        self,
        name: str,
        cron: str | None,
        job: NewJob,
        *,
        by: str | None = None,
        why: str | None = None,
        connection: AnyConnection | None = None,
        **timing: Unpack[Timing],
    ) -> Operation[Schedule]:
        """Create a schedule at run time, or change the schedule with that name.

        A pause stays. The next run stays too, unless the cron expression or the time zone changes.

        Args:
            name: 1 … 200 characters.
            cron: a cron expression of five fields, or `@every 30s`; None: runs only if triggered.
            job: made with `job_type.new(…)`.
            timing: the keys of `Timing`, documented there: timezone, catch_up, overlap, jitter.

        Raises:
            UsageError: an option is out of range, or the schedule is declared in code: change it
                there.
            PayloadError: the payload is too large.
        """
        row = check_schedule(name, cron, job, timing).make_row()
        return put_schedule(row, "api", by, why)

    aput = awaitable(put)

    @both_atomic
    def pause(
        self,
        name: str,
        *,
        by: str | None = None,
        why: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[Schedule]:
        """Pause a schedule until a person resumes it; a deploy does not end the pause.

        Enqueued jobs run. A second pause replaces `why` and `by`; `paused_at` stays. Raises
        ScheduleNotFound.
        """
        return _act("pause", name, by, why)

    apause = awaitable(pause)

    @both_atomic
    def resume(
        self,
        name: str,
        *,
        by: str | None = None,
        why: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[Schedule]:
        """End a pause. Runs missed during the pause never run, whatever `catch_up` says. Raises
        ScheduleNotFound."""
        return _act("resume", name, by, why)

    aresume = awaitable(resume)

    @both_atomic
    def trigger(
        self,
        name: str,
        *,
        by: str | None = None,
        why: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[int]:
        """Enqueue a run now, even if the schedule is paused or another run is unfinished; return
        the job's id. Raises ScheduleNotFound."""
        _check_name(name)
        job: int | None = yield from ops.ask("schedule_trigger", name=name, **check_who(why, by))
        if job is None:
            raise (yield from _explain_missing(name))
        return job

    atrigger = awaitable(trigger)

    @both_atomic
    def delete(
        self,
        name: str,
        *,
        by: str | None = None,
        why: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[None]:
        """Delete a schedule that is not declared in code. Its runs remain.

        Raises:
            UsageError: the schedule is declared in code, which would create it again.
            ScheduleNotFound: no schedule has that name.
        """
        _check_name(name)
        answer = yield from ops.ask("schedule_delete", name=name, **check_who(why, by))
        if answer == "not found":
            raise (yield from _explain_missing(name))
        if answer == "code":
            raise UsageError(
                f"schedule {name!r} is declared in code and would come back: "
                "remove it there, or pause it"
            )

    adelete = awaitable(delete)


def _read(name: str) -> Operation[Schedule]:
    _check_name(name)
    found = yield from ops.schedules(name)
    if not found:
        raise (yield from _explain_missing(name))
    return found[0]


def _explain_missing(name: str) -> Operation[ScheduleNotFound]:
    """Return the error for a name that no schedule has, with the most similar name."""
    nearest = get_close_matches(name, [known.name for known in (yield from ops.schedules())], n=1)
    return ScheduleNotFound(name, *nearest)


def _act(verb: str, name: str, by: str | None, why: str | None) -> Operation[Schedule]:
    _check_name(name)
    if (yield from ops.ask(f"schedule_{verb}", name=name, **check_who(why, by))) == "resumed":
        yield from plan_new(name)
    return (yield from _read(name))


def put_schedule(
    row: dict[str, Any], origin: str, by: str | None, why: str | None
) -> Operation[Schedule]:
    name, meta = row["name"], row["meta"]
    yield from refuse_too_large(
        row["job_type"],
        bytes(row["payload"]).decode(),
        None if meta is None else bytes(meta).decode(),
    )
    encoded = msgspec.json.encode(row).decode()
    answer = yield from ops.ask(
        "schedule_put", schedule=encoded, origin=origin, **check_who(why, by)
    )
    if answer == "code":
        raise UsageError(
            f"schedule {name!r} is declared in code: change it there, or give this one another name"
        )
    yield from plan_new(name)
    return (yield from _read(name))


def declare_and_plan(schedules: str, release: str, job_types: list[str]) -> Operation[None]:
    """Declare the schedules and the job types' names of a release before its deploy."""
    yield from ops.declare_schedules(schedules, release, job_types, is_deploy=True)
    yield from plan_new()


def plan_new(name: str | None = None) -> Operation[None]:
    """Announce the first tick of all schedules without a tick, or of the named schedule.

    A caller whose transaction may hold its locks for long names a schedule. Nothing is enqueued:
    the scheduler handles due ticks, and schedules that cannot be planned.
    """
    agenda = yield from ops.schedules_due(EVER, PORTION)
    for due in agenda.due:
        if (
            due.next_run_at is None
            and name in (None, due.name)
            and (first := _plan_first(due, agenda.now)) is not None
        ):
            yield from ops.announce(due, first)


def _check_name(name: object) -> None:
    """Raise UsageError for a value that no schedule has as its name. A name that `put` refuses is
    fit: SQL may have inserted it."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX or "\0" in name:
        raise UsageError(f"a schedule's name must be 1 to {NAME_MAX} characters, not {name!r}")


def _plan_first(due: Due, now: datetime) -> datetime | None:
    try:
        decided = plan(due, now)
    except UsageError:
        return None
    return None if decided.ticks or decided.missed else decided.next_run_at
