"""Schedules: making them, reading them, and what people do to them."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from rota.client.base import ID_MAX, LIST_MAX, Asking, reason, who
from rota.client.enqueueing import too_large
from rota.declare.jsonb import text_bytes
from rota.declare.schedule import check_schedule
from rota.errors import PayloadError, ScheduleNotFound, UsageError
from rota.model.bounds import NAME_MAX, check_integer
from rota.model.schedule import CatchUp, Due, Overlap, Run, Schedule, plan
from rota.store import ops

if TYPE_CHECKING:
    from rota.declare.job_type import NewJob
    from rota.model.units import Duration
    from rota.store.driver import Operation

EVER = datetime(1, 1, 1, tzinfo=UTC)
BATCH = 1_000


class Scheduling(Asking):
    """Makes, reads, pauses and triggers schedules."""

    def put_schedule(
        self,
        name: str,
        cron: str | None,
        job: NewJob,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "latest",
        overlap: Overlap = "skip",
        jitter: Duration | None = None,
        by: str | None = None,
        why: str | None = None,
        connection: Any = None,
    ) -> Schedule:
        """Make a schedule at run time, or change the one of that name. A pause stays; so does the next tick, unless cron text or zone are others.

        Args:
            name: 1 … 200 characters.
            cron: five fields; None: it runs when somebody triggers it.
            job: made with `job_type.new(…)`.
            timezone: in which the cron text is read, by its IANA name.
            catch_up: what becomes of ticks that came while no worker was up.
            overlap: whether a tick is skipped while an earlier run is still going.
            jitter: a duration up to a day over which the runs are spread. Defaults to none.
            by: who does it. Defaults to user@host.
            why: kept with who did it, on one line.
            connection: whose transaction this joins.

        Raises:
            UsageError: an option cannot be, or the code declares the schedule: change it there.
            PayloadError: the payload is too large.
        """
        options: dict[str, Any] = {
            "timezone": timezone,
            "catch_up": catch_up,
            "overlap": overlap,
            "jitter": jitter,
        }
        return self._run(_put(name, cron, job, options, by, why), connection, atomic=True)

    async def aput_schedule(
        self,
        name: str,
        cron: str | None,
        job: NewJob,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "latest",
        overlap: Overlap = "skip",
        jitter: Duration | None = None,
        by: str | None = None,
        why: str | None = None,
        connection: Any = None,
    ) -> Schedule:
        """Make a schedule at run time, or change the one of that name. Raises as `put_schedule`."""
        options: dict[str, Any] = {
            "timezone": timezone,
            "catch_up": catch_up,
            "overlap": overlap,
            "jitter": jitter,
        }
        return await self._arun(_put(name, cron, job, options, by, why), connection, atomic=True)

    def schedules(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return self._run(ops.schedules())

    async def aschedules(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return await self._arun(ops.schedules())

    def get_schedule(self, name: str) -> Schedule:
        """Return a schedule. Raises ScheduleNotFound."""
        return self._run(get_schedule(name))

    async def aget_schedule(self, name: str) -> Schedule:
        """Return a schedule. Raises ScheduleNotFound."""
        return await self._arun(get_schedule(name))

    def schedule_runs(self, name: str, *, before: int | None = None, limit: int = 100) -> list[Run]:
        """Return the runs of a schedule, the newest first, skipped ticks too, as long as history is kept; also of one that was deleted.

        Args:
            before: the id of a job: only runs before it, the next page.
            limit: 1 … 10,000.

        Raises:
            ScheduleNotFound: there is none of that name, and no run of one.
        """
        return self._run(runs(name, before, limit))

    async def aschedule_runs(
        self, name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Run]:
        """Return the runs of a schedule, the newest first; `before` the id of a job for the next page. Raises as `schedule_runs`."""
        return await self._arun(runs(name, before, limit))

    def pause_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> Schedule:
        """Let no tick of a schedule be enqueued until it is resumed, over deploys too. What is enqueued already runs. Raises ScheduleNotFound.

        Paused again, the newest `why` and `by` hold; `paused_at` stays.
        """
        return self._run(act("pause", name, by, why), connection, atomic=True)

    async def apause_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> Schedule:
        """Let no tick of a schedule be enqueued until it is resumed. Raises ScheduleNotFound."""
        return await self._arun(act("pause", name, by, why), connection, atomic=True)

    def resume_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> Schedule:
        """End a pause. Ticks that fell into it are not caught up with, whatever `catch_up` says. Raises ScheduleNotFound."""
        return self._run(act("resume", name, by, why), connection, atomic=True)

    async def aresume_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> Schedule:
        """End a pause. Raises ScheduleNotFound."""
        return await self._arun(act("resume", name, by, why), connection, atomic=True)

    def trigger_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> int:
        """Enqueue a run now, also of a paused schedule and while another run is going; return the job's id. Raises ScheduleNotFound."""
        return self._run(trigger(name, by, why), connection, atomic=True)

    async def atrigger_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> int:
        """Enqueue a run now; return the job's id. Raises ScheduleNotFound."""
        return await self._arun(trigger(name, by, why), connection, atomic=True)

    def delete_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> None:
        """Delete a schedule that was made by API, command line or SQL. Its runs stay.

        Raises:
            UsageError: the code declares it, and would make it again.
            ScheduleNotFound: there is none of that name.
        """
        self._run(delete(name, by, why), connection, atomic=True)

    async def adelete_schedule(
        self, name: str, *, by: str | None = None, why: str | None = None, connection: Any = None
    ) -> None:
        """Delete a schedule that was made by API, command line or SQL. Raises as `delete_schedule`."""
        await self._arun(delete(name, by, why), connection, atomic=True)


def get_schedule(name: str) -> Operation[Schedule]:
    """Read the schedule of that name."""
    _check_sought(name)
    found = yield from ops.schedules(name)
    if not found:
        raise (yield from _not_found(name))
    return found[0]


def _not_found(name: str) -> Operation[ScheduleNotFound]:
    """What to raise for a name that no schedule has."""
    nearest = get_close_matches(name, [one.name for one in (yield from ops.schedules())], n=1)
    return ScheduleNotFound(name, *nearest)


def act(verb: str, name: str, by: str | None, why: str | None) -> Operation[Schedule]:
    """Pause or resume a schedule."""
    _check_sought(name)
    if (yield from ops.act_on_schedule(verb, name, reason(why), who(by))) == "resumed":
        yield from plan_new(name)
    return (yield from get_schedule(name))


def trigger(name: str, by: str | None, why: str | None) -> Operation[int]:
    """Enqueue a run of a schedule."""
    _check_sought(name)
    job = yield from ops.trigger_schedule(name, reason(why), who(by))
    if job is None:
        raise (yield from _not_found(name))
    return job


def delete(name: str, by: str | None, why: str | None) -> Operation[None]:
    """Delete a schedule."""
    _check_sought(name)
    answer = yield from ops.act_on_schedule("delete", name, reason(why), who(by))
    if answer == "not found":
        raise (yield from _not_found(name))
    if answer == "code":
        raise UsageError(
            f"schedule {name!r} is declared in code and would come back: remove it there, or pause it"
        )


def put(
    definition: dict[str, Any], origin: str, by: str | None, why: str | None
) -> Operation[Schedule]:
    """Make or change a schedule from what its row is to say."""
    name, most = definition["name"], (yield from ops.payload_bytes_max())
    for argument in ("payload", "meta"):
        size = (
            0 if definition[argument] is None else text_bytes(bytes(definition[argument]).decode())
        )
        if size > most:
            raise PayloadError(
                definition["job_type"],
                None if argument == "payload" else argument,
                too_large(size, most),
            )
    answer = yield from ops.put_schedule(
        msgspec.json.encode(definition).decode(), origin, reason(why), who(by)
    )
    if answer == "code":
        raise UsageError(
            f"schedule {name!r} is declared in code: change it there, or give this one another name"
        )
    yield from plan_new(name)
    return (yield from get_schedule(name))


def declare_and_plan(schedules: str, release: str) -> Operation[None]:
    """Declare the schedules of a release that is about to be deployed."""
    yield from ops.declare_schedules(schedules, release, is_deploy=True)
    yield from plan_new()


def plan_new(name: str | None = None) -> Operation[None]:
    """Announce the first tick of schedules that have none yet, or of the one: the caller's transaction may keep it locked for long.

    Nothing is enqueued; what is due already, or cannot be, is the scheduler's.
    """
    agenda = yield from ops.schedules_due(EVER, BATCH)
    for due in agenda.due:
        if (
            due.next_run_at is None
            and name in (None, due.name)
            and (decided := _planned(due, agenda.now)) is not None
        ):
            yield from ops.announce(due, decided)


def _check_sought(name: object) -> None:
    """Refuse what no schedule's name can be. One that SQL has made may hold signs that Python lets nobody give, and has to be got at all the same."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX or "\0" in name:
        raise UsageError(f"a schedule's name must be 1 to {NAME_MAX} characters, not {name!r}")


def _planned(due: Due, now: datetime) -> datetime | None:
    try:
        decided = plan(due, now)
    except UsageError:
        return None
    return None if decided.ticks or decided.missed else decided.next_run_at


def _put(
    name: str,
    cron: str | None,
    job: NewJob,
    options: dict[str, Any],
    by: str | None,
    why: str | None,
) -> Operation[Schedule]:
    return (yield from put(check_schedule(name, cron, job, **options).row(), "api", by, why))


def runs(name: str, before: int | None, limit: int) -> Operation[list[Run]]:
    """Read the runs of a schedule, also of one that was deleted."""
    _check_sought(name)
    check_integer(limit, "limit", 1, LIST_MAX)
    if before is not None:
        check_integer(before, "before", 1, ID_MAX)
    found = yield from ops.runs(name, before, limit)
    if not found and not (yield from ops.runs(name, None, 1)):
        yield from get_schedule(name)
    return found
