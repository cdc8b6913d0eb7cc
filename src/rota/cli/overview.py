"""`rota stats`, `queues`, `workers` and `types`: the current state, and recent statistics."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from rota.cli.output import cell, name_seconds, print_json, print_table
from rota.cli.pause import in_words, what
from rota.cli.target import JsonOption, Place
from rota.client.find import HOURS_MAX
from rota.model.bounds import COUNT_MAX
from rota.model.failure import one_line
from rota.model.retry import plan_in_words
from rota.model.units import show_count, words
from rota.store import ops
from rota.store.ops import Figures, Overrun, Stats

_WORKERS = (
    "name", "host", "pid", "version", "release", "job_types", "queues", "running",
    "started_at", "heartbeat_at", "stopped_at",
)  # fmt: skip
_TYPES = (
    "name", "aliases", "queue", "priority", "max_attempts", "timeout", "lease", "expires",
    "key_arguments", "on_duplicate", "key_scope", "key_ttl", "history", "on_lost", "on_expired",
    "version", "retry_after", "release", "declared_at",
)  # fmt: skip
_DURATIONS = ("timeout", "lease", "expires", "key_ttl")
_RELEASES_MAX = 5
"""Most releases on one line. `--json` has the others."""


def stats(
    hours: Annotated[
        int,
        typer.Option(
            min=1,
            max=HOURS_MAX,
            help="Statistics of the last N hours, including the current one.",
        ),
    ] = 24,
    job_type: Annotated[
        str | None,
        typer.Option("--type", metavar="NAME", help="Only jobs of this type, hour by hour."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs in this queue.")
    ] = None,
    *,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Count unfinished jobs by status, and show statistics of recent hours.

    Also shows the oldest due job and the jobs that run too long. Statistics are per job type, with
    --type per hour.
    """
    with place.session() as opened:
        found = opened.run(ops.stats(hours, job_type, queue))
    if as_json:
        print_json(found)
        return
    print_table(
        ("status", "jobs"),
        [(status, show_count(jobs, COUNT_MAX)) for status, jobs in found.jobs.items()],
        empty="",
    )
    if found.oldest_due_at is None or found.oldest_due_s is None:
        typer.echo("oldest due: none")
    else:
        since, waiting = cell(found.oldest_due_at).plain, words(found.oldest_due_s)
        typer.echo(f"oldest due: {since}, waiting for {waiting}")
    if found.too_long:
        typer.echo("\nRunning too long")
        columns = ("id", "type", "queue", "worker", "started at", "running for", "timeout")
        print_table(columns, [_overrun(one) for one in found.too_long], empty="")
    _print_figures(found, hours, by_hour=job_type is not None)


def _print_figures(found: Stats, hours: int, *, by_hour: bool) -> None:
    until = "" if found.complete_to is None else f", until {cell(found.complete_to).plain}"
    typer.echo(f"\nEnded in the last {hours} h{until}; times are accurate to 10 %")
    columns = (
        "succeeded",
        "after a retry",
        "retried",
        "dead",
        "cancelled",
        "waited p50",
        "p95",
        "ran p50",
        "p95",
    )
    rows = [
        [one.hour if by_hour else one.job_type, *_figures(one)]
        for one in (found.hours if by_hour else found.types)
    ]
    print_table(("hour" if by_hour else "type", *columns), rows, empty="nothing")
    if found.failed_by_release:
        by = [f"{count:,} by {one_line(name)}" for name, count in found.failed_by_release.items()]
        more = ", …" if len(by) > _RELEASES_MAX else ""
        typer.echo(f"failed attempts: {', '.join(by[:_RELEASES_MAX])}{more}")


def _figures(one: Figures) -> list[str]:
    counts = (one.succeeded, one.succeeded_late, one.retried, one.dead, one.cancelled)
    times = (one.waited_p50_s, one.waited_p95_s, one.ran_p50_s, one.ran_p95_s)
    return [
        *(f"{count:,}" for count in counts),
        *("" if took_s is None else words(took_s) for took_s in times),
    ]


def _overrun(one: Overrun) -> tuple[Any, ...]:
    timeout = "" if one.timeout_s is None else words(one.timeout_s)
    return (
        one.id,
        one.job_type,
        one.queue,
        one.worker,
        one.started_at,
        words(one.running_s),
        timeout,
    )


def queues(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """List queues and priorities with due and future jobs, and all pauses."""
    with place.session() as opened:
        found = opened.run(ops.read_queues())
        pauses = {pause.queue: pause for pause in opened.run(ops.pauses())}
    if as_json:
        print_json(
            {
                "queues": found,
                "counted_to": COUNT_MAX,
                "paused_all": pauses.pop(None, None),
                "paused": list(pauses.values()),
            }
        )
        return
    rows = [
        (
            row.queue,
            row.priority,
            show_count(row.due, COUNT_MAX),
            show_count(row.later, COUNT_MAX),
            row.oldest_run_at,
        )
        for row in found
    ]
    print_table(
        ("queue", "priority", "due", "later", "oldest run at"),
        rows,
        empty="no jobs due, now or later",
    )
    for pause in pauses.values():
        typer.echo(f"{what(pause)}: {in_words(pause)}")


def workers(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """List the workers seen in the last hour."""
    with place.session() as opened:
        found = opened.run(ops.table("workers", columns=_WORKERS))
    for row in found:
        row["queues"] = msgspec.json.decode(row["queues"])
    if as_json:
        print_json({"workers": found})
        return
    columns = (
        "name",
        "version",
        "release",
        "queues",
        "running",
        "started_at",
        "heartbeat_at",
        "stopped_at",
    )
    rows = [
        [_slots(row[name]) if name == "queues" else row[name] for name in columns] for row in found
    ]
    print_table(
        [name.replace("_", " ") for name in columns], rows, empty="no workers in the last hour"
    )


def types(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """List the declared job types, each with its retry policy in words."""
    with place.session() as opened:
        found = [_with_plan(row) for row in opened.run(ops.table("job_types", columns=_TYPES))]
    if as_json:
        print_json({"types": [name_seconds(row, _DURATIONS) for row in found]})
        return
    columns = (
        "name",
        "queue",
        "priority",
        "timeout",
        "lease",
        "expires",
        "max_attempts",
        "retry_words",
        "release",
    )
    rows = [[row[name] for name in columns] for row in found]
    titles = (
        "name",
        "queue",
        "priority",
        "timeout",
        "lease",
        "expires",
        "attempts",
        "retries",
        "release",
    )
    print_table(
        titles,
        rows,
        empty="no job types declared; `rota sync` or the start of a worker declares them",
    )


def _with_plan(row: dict[str, Any]) -> dict[str, Any]:
    plan_s = [delay.total_seconds() for delay in row.pop("retry_after")]
    return row | {"retry_words": plan_in_words(plan_s, row["max_attempts"]) if plan_s else ""}


def _slots(queues: dict[str, int | None]) -> str:
    return ", ".join(name if slots is None else f"{name}={slots}" for name, slots in queues.items())
