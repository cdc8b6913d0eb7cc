"""`rota stats`, `metrics`, `workers` and `types`: the current state, and recent statistics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from rota.cli.flags import option
from rota.cli.frame import name_state
from rota.cli.listing import Field, Listing, label, number, span, spare
from rota.cli.output import Times, name_seconds, print_json, print_text, show_utc
from rota.cli.table import Kind
from rota.cli.target import JsonOption, Place, Viewer
from rota.client.queues import HOURS_MAX
from rota.client.session import Session
from rota.declare.options import JOB_OPTIONS
from rota.model.bounds import COUNT_MAX
from rota.model.failure import one_line
from rota.model.metric import render_metrics
from rota.model.retry import plan_in_words
from rota.model.units import list_some, show_count, words
from rota.records import Figures, Stats
from rota.store.columns import JOB_TYPE

_WORKERS = (
    "name", "host", "pid", "version", "release", "job_types", "queues", "running",
    "started_at", "heartbeat_at", "stopped_at", "state",
)  # fmt: skip
_DURATIONS = [
    declared.name
    for declared in JOB_OPTIONS.values()
    if declared.kind.unit == "duration" and declared.name in JOB_TYPE
]
_RELEASES_MAX = 5
"""Most releases on one line; `--json` has all."""


def stats(
    hours: int = option(
        "--hours",
        "Statistics of the last N hours, including the current one.",
        default=24,
        min=1,
        max=HOURS_MAX,
    ),
    job_type: str | None = option("--type NAME", "Only jobs of this type, hour by hour."),
    queue: str | None = option("--queue NAME", "Only jobs in this queue."),
    *,
    viewer: Viewer,
) -> None:
    """Count unfinished jobs by status, and show statistics of recent hours.

    Also shows the oldest due job. Statistics are per job type, with --type per hour.
    """
    with viewer.session() as opened:
        found = opened.queues.stats(hours=hours, job_type=job_type, queue=queue)
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json(found)
        return
    COUNTS.print(list(found.jobs.items()))
    if found.oldest_due_at is None or found.oldest_due_s is None:
        typer.echo("oldest due: none")
    else:
        since = f", since {show_utc(found.oldest_due_at)}" if viewer.utc else ""
        typer.echo(f"oldest due: waiting for {words(found.oldest_due_s)}{since}")
    _print_figures(found, hours, times, by_hour=job_type is not None)


def _print_figures(found: Stats, hours: int, times: Times, *, by_hour: bool) -> None:
    until = times.show(found.complete_to)
    typer.echo(f"\nEnded in the last {hours} h, until {until}; times are accurate to 10 %")
    (HOURS if by_hour else TYPE_FIGURES).print(found.hours if by_hour else found.types, times)
    if found.failed_by_release:
        by = [f"{count:,} by {one_line(name)}" for name, count in found.failed_by_release.items()]
        print_text(f"failed attempts: {list_some(by, _RELEASES_MAX, ', ')}")


def _name_status(counted: tuple[str, int], _: Times) -> str:
    return "failed, to be retried" if counted[0] == "failed" else counted[0]


def _show_hour(figures: Figures, times: Times) -> str:
    """Format the hour of a figure as a part of the day: it has no age."""
    if figures.hour is None:
        return ""
    if times.utc:
        return f"{figures.hour.astimezone(UTC):%Y-%m-%d %H:%MZ}"
    return f"{figures.hour.astimezone():%Y-%m-%d %H:%M}"


def _tally(title: str, field: str = "") -> Field:
    read = Field(title, field).read

    def show(figures: Figures, times: Times) -> str:
        count = read(figures, times)
        return f"{count:,}" if count else ""

    return number(title, show)


COUNTS = Listing(
    "jobs",
    (
        Field("status", _name_status),
        number("jobs", lambda counted, _: show_count(counted[1], COUNT_MAX)),
    ),
)
_FIGURES = (
    _tally("succeeded"),
    spare(_tally("after a retry", "succeeded_late")),
    *map(_tally, ("retried", "dead", "cancelled")),
    spare(span("waited p50", "waited_p50_s")),
    span("waited p95", "waited_p95_s"),
    spare(span("ran p50", "ran_p50_s")),
    span("ran p95", "ran_p95_s"),
)
HOURS = Listing("hours", (Field("hour", _show_hour), *_FIGURES), empty="nothing")
TYPE_FIGURES = Listing("types", (Field("type", "job_type", Kind.TYPE), *_FIGURES), empty="nothing")


def metrics(place: Place, as_json: JsonOption = False) -> None:
    """Print the gauges of the database in the text format of Prometheus.

    For a setup without a permanent worker, as for the textfile collector of the node exporter.
    """
    with place.session() as opened:
        found = opened.queues.metrics()
    if as_json:
        print_json({"metrics": found})
    else:
        typer.echo(render_metrics(found), nl=False)


def workers(viewer: Viewer) -> None:
    """List the workers seen in the last hour: alive, silent, gone or stopped."""
    WORKERS.show(viewer, find_workers)


def find_workers(opened: Session) -> list[dict[str, Any]]:
    found = opened.read_table("workers", {"counted": COUNT_MAX}, columns=_WORKERS)
    return [row | {"queues": msgspec.json.decode(row["queues"])} for row in found]


def _name_state(worker: dict[str, Any], times: Times) -> str:
    quiet_s = max(0.0, (times.now - _last_sight(worker)).total_seconds())
    return worker["state"] if times.utc else name_state(worker["state"], quiet_s)


def _last_sight(worker: dict[str, Any]) -> datetime:
    return worker["stopped_at"] or worker["heartbeat_at"]  # type: ignore[no-any-return]


def _list_slots(worker: dict[str, Any], _: Times) -> str:
    return ", ".join(
        queue if slots is None else f"{queue}={slots}" for queue, slots in worker["queues"].items()
    )


WORKERS = Listing(
    "workers",
    (
        label("worker", "name"),
        Field("state", _name_state),
        Field("last seen", lambda worker, times: _last_sight(worker) if times.utc else None),
        number("running"),
        spare(label("release")),
        spare(label("version")),
        spare(Field("started", "started_at")),
        Field("queues", _list_slots, Kind.TEXT),
    ),
    empty="no workers in the last hour",
)


def types(viewer: Viewer) -> None:
    """List the declared job types, each with its retry policy in words."""
    TYPES.show(viewer, find_types)


def find_types(opened: Session) -> list[dict[str, Any]]:
    found = opened.read_table("job_types", columns=JOB_TYPE)
    return [name_seconds(_with_plan(row), _DURATIONS) for row in found]


def _with_plan(row: dict[str, Any]) -> dict[str, Any]:
    plan_s = [delay.total_seconds() for delay in row.pop("retry_after")]
    return row | {"retry_words": plan_in_words(plan_s, row["max_attempts"]) if plan_s else ""}


TYPES = Listing(
    "types",
    (
        Field("type", "name", Kind.TYPE),
        spare(label("queue")),
        spare(number("priority")),
        Field("timeout", "timeout_s"),
        *(spare(Field(title, f"{title}_s")) for title in ("lease", "expires")),
        spare(number("at once", "max_running")),
        number("attempts", "max_attempts"),
        Field("retries", "retry_words", Kind.TEXT),
        spare(label("release")),
    ),
    empty="no job types declared; `rota sync` or the start of a worker declares them",
)
