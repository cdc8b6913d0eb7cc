"""`rota schedules` lists schedules; with a verb it shows or changes a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any

import typer

from rota.cli.enqueue import ForceOption, Overrides, PayloadOption, find_type, make_untyped
from rota.cli.enqueue import arguments as read_arguments
from rota.cli.flags import argument, option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, label, number, show_error, show_status, span, spare
from rota.cli.output import Times, print_facts, print_json
from rota.cli.table import Kind
from rota.cli.target import Actor, Place, Viewer
from rota.client.base import ID_MAX, LIST_MAX
from rota.client.schedules import put_schedule
from rota.declare.options import EnqueueOptions, UsingOptions
from rota.declare.schedule import ScheduleOptions, check_schedule, check_timing
from rota.errors import ScheduleNotFound, UsageError
from rota.model.schedule import NEXT_TIMES_MAX, Schedule

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


def schedules(viewer: Viewer) -> None:
    """List all schedules."""
    SCHEDULES.show(viewer, lambda opened: opened.schedules.list())


def show(
    name: Name,
    times: int = option("--next", "Number of next times.", default=10, min=0, max=NEXT_TIMES_MAX),
    limit: int = option("--limit", "Maximum number of last runs.", default=10, min=0, max=LIST_MAX),
    before: int | None = option(
        "--before ID", "Only runs with a smaller job id: for the next page.", min=1, max=ID_MAX
    ),
    *,
    viewer: Viewer,
) -> None:
    """Show a schedule, its next times in its own time zone, and its last runs.

    For a deleted schedule, shows only its runs.
    """
    with viewer.session() as opened:
        runs = opened.schedules.runs(name, before=before, limit=max(limit, 1))[:limit]
        found = None
        with suppress(ScheduleNotFound):  # it was deleted, and its runs are kept
            found = opened.schedules.get(name)
        ages = viewer.read_times(opened)
    coming, problem = ([], None) if found is None else find_next_times(found, times)
    if viewer.as_json:
        print_json({"schedule": found, "next": coming, "problem": problem, "runs": runs})
        return
    facts = [("schedule", name), ("state", "deleted")] if found is None else _facts(found)
    print_facts([*facts, ("problem", problem)], ages)
    if found is not None and coming:
        inactive = "" if found.is_active else f" (does not run: {name_state(found)})"
        typer.echo(f"\nNext times, {found.timezone}{inactive}")
        for at in coming:
            typer.echo(at.strftime("%a %Y-%m-%d %H:%M %z"))
    if limit:
        typer.echo("\nLast runs")
        RUN_LIST.print(runs, ages)


def put(
    name: Name,
    job_type: str = argument("TYPE", "Job type."),
    cron: str | None = option(
        "--cron CRON", "Cron expression: '0 2 * * *'. Default: none; runs only if triggered."
    ),
    payload: PayloadOption = "{}",
    timezone: str = option(
        "--timezone ZONE", "Time zone of the cron expression, by IANA name.", default="UTC"
    ),
    catch_up: str = option(
        "--catch-up skip|latest|all",
        "Scheduled times missed while no worker ran. skip: drop those over 5 min "
        "late; latest: run the latest; all: run all, at most 100.",
        default="latest",
    ),
    overlap: str = option(
        "--overlap skip|allow",
        "A run while an earlier one is unfinished. skip: drop it; allow: run both.",
        default="skip",
    ),
    jitter: str | None = option(
        "--jitter DURATION", "Spread the runs over this time, at most 1d. Default: none."
    ),
    *,
    overrides: Overrides,
    force: ForceOption = False,
    actor: Actor,
) -> None:
    """Create a schedule, or change the schedule with this name.

    Rota checks the payload against the job type. A paused schedule stays paused.
    """
    timing: Any = {"timezone": timezone, "catch_up": catch_up, "overlap": overlap, "jitter": jitter}
    arguments = read_arguments(job_type, payload)
    schedule = make_schedule(
        actor, name, cron, job_type, arguments, overrides.read(), timing, force=force
    )
    with actor.session() as opened, opened.connection.transaction():
        put_now = opened.run(
            put_schedule(schedule.make_row(), "cli", actor.by, actor.why), atomic=True
        )
    _say(put_now, actor)


def make_schedule(
    place: Place,
    name: str,
    cron: str | None,
    job_type: str,
    arguments: dict[str, Any],
    options: UsingOptions,
    timing: Any = MappingProxyType({}),
    *,
    force: bool = True,
) -> ScheduleOptions:
    """Return a checked schedule; with `force` also of a type that the App does not declare."""
    checked = EnqueueOptions().update(options)
    declared = find_type(place, job_type, force=force)
    if declared is not None:
        return check_schedule(name, cron, declared._make((), arguments, checked), timing)
    job = make_untyped(job_type, arguments, checked, options.get("meta"))
    return ScheduleOptions(
        name, cron, job.job_type, job.payload, None, job.options, job.options.group_key,
        *check_timing(name, cron, timing), asks_json=job.asks_json,
    )  # fmt: skip


def pause(name: Name, *, actor: Actor) -> None:
    """Pause a schedule until you resume it; a deploy does not end the pause.

    Jobs already enqueued run.
    """
    with actor.session() as opened:
        _say(opened.schedules.pause(name, by=actor.by, why=actor.why), actor)


def resume(name: Name, *, actor: Actor) -> None:
    """End a pause. The scheduled times missed during the pause do not run later."""
    with actor.session() as opened:
        _say(opened.schedules.resume(name, by=actor.by, why=actor.why), actor)


def trigger(name: Name, *, actor: Actor) -> None:
    """Enqueue a run now, even if the schedule is paused or another run is unfinished."""
    with actor.session() as opened:
        job = opened.schedules.trigger(name, by=actor.by, why=actor.why)
    actor.say({"schedule": name, "job": job}, f"job {job} queued")


def delete(name: Name, *, actor: Actor) -> None:
    """Delete a schedule that is not declared in code. Its runs remain."""
    with actor.session() as opened:
        opened.schedules.delete(name, by=actor.by, why=actor.why)
    actor.say({"schedule": name, "deleted": True}, f"deleted  {name}")


def _say(schedule: Schedule, actor: Actor) -> None:
    if actor.as_json:
        print_json({"schedule": schedule})
    else:
        print_facts(_facts(schedule), Times(schedule.now))


def _facts(schedule: Schedule) -> Iterator[tuple[str, Any]]:
    yield "schedule", schedule.name
    yield "state", name_state(schedule)
    yield "job type", schedule.job_type
    yield "payload", schedule.shown_payload
    yield (
        "cron",
        "none: it runs only if triggered"
        if schedule.cron is None
        else f"{schedule.cron} ({schedule.timezone})",
    )
    yield "catch up", schedule.catch_up
    yield "overlap", schedule.overlap
    yield "jitter", None if not schedule.jitter_s else timedelta(seconds=schedule.jitter_s)
    yield "expires", None if schedule.expires_s is None else timedelta(seconds=schedule.expires_s)
    yield "meta", schedule.meta_json
    yield "group key", schedule.group_key
    for name in (
        "queue",
        "priority",
        "max_attempts",
        "next_run_at",
        "last_run_at",
        "last_job",
        "last_error",
    ):
        yield name.replace("_", " "), getattr(schedule, name)
    yield (
        "created by",
        schedule.origin
        if schedule.release is None
        else f"{schedule.origin}, release {schedule.release}",
    )
    for name in ("paused_at", "paused_by", "paused_why", "disabled_at", "created_at", "updated_at"):
        yield name.replace("_", " "), getattr(schedule, name)


LATE = timedelta(minutes=1)
"""A schedule is overdue from this lateness on."""


def name_state(schedule: Schedule) -> str:
    if schedule.disabled_at is not None:
        return "disabled"
    if schedule.paused_at is not None:
        return "paused"
    if schedule.last_error is not None:
        return "failing"
    next_at = schedule.next_run_at
    if schedule.is_active and next_at is not None and schedule.now - next_at > LATE:
        return "overdue"
    return "active" if schedule.cron is not None else "manual"


def find_next_times(schedule: Schedule, count: int) -> tuple[list[datetime], str | None]:
    """Return the next times of a schedule; or none, and why this process cannot read it."""
    try:
        return schedule.next_times(count), None
    except UsageError as error:
        return [], str(error)


SCHEDULES = Listing(
    "schedules",
    (
        label("name"),
        Field("type", "job_type", Kind.TYPE),
        label("cron", lambda schedule, _: schedule.cron or "-"),
        spare(Field("time zone", "timezone")),
        Field("state", lambda schedule, _: name_state(schedule)),
        Field("next run", "next_run_at"),
        spare(Field("last run", "last_run_at")),
        spare("last job"),
        spare(label("from", "origin")),
        spare(
            Field("why", lambda schedule, _: schedule.last_error or schedule.paused_why, Kind.ERROR)
        ),
    ),
    empty="no schedules",
)
RUN_LIST = Listing(
    "runs",
    (
        "job",
        Field("tick", lambda run, _: run.scheduled_for or "triggered"),
        spare(Field("enqueued", "enqueued_at")),
        Field("status", lambda run, times: show_status(run.status, None, times)),
        spare(number("attempts")),
        spare(Field("started", "started_at")),
        span("took", "ran_s"),
        Field("error", lambda run, _: show_error(run), Kind.ERROR),
    ),
)


app = make_noun(
    schedules, show=show, put=put, pause=pause, resume=resume, trigger=trigger, delete=delete
)
