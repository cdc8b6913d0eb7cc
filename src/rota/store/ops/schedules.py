"""How schedules are declared, planned and advanced."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.model.schedule import Due, Plan, Run, Schedule
from rota.store.driver import Operation, Query, Row
from rota.store.errors import RowRefused


class Agenda(msgspec.Struct, frozen=True):
    now: datetime
    is_paused: bool
    """Everything is paused: nothing may be planned."""
    next_in_s: float | None
    """Seconds until the next tick of all other schedules; None: there is none."""
    due: list[Due]


class Done(msgspec.Struct, frozen=True):
    """The result of a tick. `job` is the run, or the row in history of a run that was skipped while
    the job `live` was not over."""

    scheduled_for: datetime
    job: int
    live: int | None


def schedules_due(after: datetime, limit: int) -> Operation[Agenda]:
    """Read the schedules to plan, among ticks announced for later than `after`."""
    rows = yield Query("schedules_due", {"after": after, "limit": limit})
    now, is_paused, next_in_s = rows[0][:3]
    return Agenda(now, is_paused, next_in_s, [Due(*row[3:]) for row in rows if row[3] is not None])


class RefusedRun(msgspec.Struct, frozen=True):
    """The database's error for a job that it does not accept. The definition was checked, so a
    user's trigger or constraint is at fault, or a missing right. A retry may help."""

    reason: str


def advance(due: Due, plan: Plan) -> Operation[list[Done] | RefusedRun | None]:
    """Enqueue the ticks of a plan and announce the next tick, in one transaction. None: another
    worker did, or the schedule was changed."""
    query = Query(
        "schedule_advance",
        {
            "name": due.name,
            "next_run_at": due.next_run_at,
            "since": due.since,
            "then": plan.next_run_at,
            "ticks": [tick.at for tick in plan.ticks],
            "run_ats": [tick.run_at for tick in plan.ticks],
        },
    )
    try:
        rows = yield query
    except RowRefused as error:
        return RefusedRun(f"its job cannot be enqueued: {error.first_line}")
    return [Done(*row) for row in rows[1:]] if rows else None


def announce(due: Due, next_run_at: datetime) -> Operation[bool]:
    """Write the first tick of a schedule that has none, if unchanged since it was read."""
    answer = yield from advance(due, Plan((), next_run_at, 0))
    return isinstance(answer, list)


def fail_tick(due: Due, why: str) -> Operation[None]:
    """Record why the job of a tick was not enqueued; the tick stays due."""
    params = {"name": due.name, "next_run_at": due.next_run_at, "since": due.since, "why": why}
    yield Query("schedule_fail", params)


def refuse(due: Due, why: str) -> Operation[bool]:
    """Pause a schedule whose job is unfit; return whether it was unchanged."""
    params = {"name": due.name, "next_run_at": due.next_run_at, "since": due.since, "why": why}
    return (yield Query("schedule_refuse", params))[0][0]  # type: ignore[no-any-return]


def declare_schedules(
    schedules: str, release: str, job_types: list[str], *, is_deploy: bool
) -> Operation[int]:
    """Declare the schedules of a release that knows these job types, a JSON array; return how many.
    A worker's start changes nothing while a newer release is at work."""
    params = {"schedules": schedules, "release": release, "job_types": job_types}
    rows = yield Query("schedules_declare", {**params, "is_deploy": is_deploy})
    return rows[0][0]  # type: ignore[no-any-return]


def disable_schedules() -> Operation[list[str]]:
    """Disable schedules that the newest release has not declared for an hour; return names."""
    return [row[0] for row in (yield Query("schedules_disable"))]


def schedules(name: str | None = None) -> Operation[list[Schedule]]:
    rows = yield Query("schedules", {"name": name})
    return [Schedule(**dict(zip(Schedule.__struct_fields__, row, strict=True))) for row in rows]


def runs(schedule: str, before: int | None, limit: int) -> Operation[list[Run]]:
    rows = yield Query("schedule_runs", {"schedule": schedule, "before": before, "limit": limit})
    return [_run(row) for row in rows]


def last_runs(schedules: int, runs: int) -> Operation[dict[str, list[Run]]]:
    """Read the last runs of the first schedules, by name, the newest first."""
    found: dict[str, list[Run]] = {}
    for row in (yield Query("schedules_runs", {"schedules": schedules, "runs": runs})):
        found.setdefault(row[0], []).append(_run(row[1:]))
    return found


def _run(row: Row) -> Run:
    return Run(**dict(zip(Run.__struct_fields__, row, strict=True)))
