"""`rota stats`, `queues`, `workers` and `types`: how things stand."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from rota.cli.output import cell, print_json, print_table
from rota.cli.pause import in_words, what
from rota.cli.target import AppOption, JsonOption, SchemaOption, UrlOption, session
from rota.duration import words
from rota.store import ops

COUNT_MAX = 10_000
"""Jobs are counted so far: a look at a full queue must not cost more than at an empty one."""

_STATS = ("status", "jobs")
_QUEUES = ("queue", "priority", "due", "later", "oldest_run_at")
_WORKERS = (
    "name", "host", "pid", "version", "release", "job_types", "queues", "running", "started_at", "heartbeat_at", "stopped_at",
)  # fmt: skip
_TYPES = (
    "name", "aliases", "queue", "priority", "max_attempts", "timeout", "lease", "expires", "key_ttl", "history", "on_lost", "version", "retry_words",
    "release", "declared_at",
)  # fmt: skip
_DURATIONS = ("timeout", "lease", "expires", "key_ttl")


def stats(app: AppOption = None, url: UrlOption = None, schema: SchemaOption = None, as_json: JsonOption = False) -> None:
    """Count the jobs that are not over, and say how long the oldest due one has been waiting."""
    with session(app, url, schema) as opened:
        counts = opened.run(ops.table("stats", {"limit": COUNT_MAX}, columns=_STATS))
        oldest = opened.run(ops.oldest_due())
    if as_json:
        due = None if oldest is None else {"run_at": oldest[0], "waiting_s": oldest[1]}
        print_json({"jobs": {row["status"]: row["jobs"] for row in counts}, "counted_to": COUNT_MAX, "oldest_due": due})
        return
    print_table(_STATS, [(row["status"], _at_least(row["jobs"])) for row in counts], empty="")
    if oldest is None:
        typer.echo("oldest due: none")
    else:
        typer.echo(f"oldest due: {cell(oldest[0]).plain}, waiting for {words(oldest[1])}")


def queues(app: AppOption = None, url: UrlOption = None, schema: SchemaOption = None, as_json: JsonOption = False) -> None:
    """List the queues and priorities that have jobs ready, or to come, and what is paused."""
    with session(app, url, schema) as opened:
        found = opened.run(ops.table("queues", {"limit": COUNT_MAX}, columns=_QUEUES))
        pauses = {pause.queue: pause for pause in opened.run(ops.pauses())}
    if as_json:
        paused = {name: msgspec.to_builtins(pause) for name, pause in pauses.items()}
        print_json({"queues": found, "counted_to": COUNT_MAX, "paused_all": paused.pop(None, None), "paused": list(paused.values())})
        return
    rows = [(row["queue"], row["priority"], _at_least(row["due"]), _at_least(row["later"]), row["oldest_run_at"]) for row in found]
    print_table(("queue", "priority", "due", "later", "oldest run at"), rows, empty="no job is ready or to come")
    for pause in pauses.values():
        typer.echo(f"{what(pause)}: {in_words(pause)}")


def workers(app: AppOption = None, url: UrlOption = None, schema: SchemaOption = None, as_json: JsonOption = False) -> None:
    """List the workers of the last hour."""
    with session(app, url, schema) as opened:
        found = opened.run(ops.table("workers", columns=_WORKERS))
    for row in found:
        row["queues"] = msgspec.json.decode(row["queues"])
    if as_json:
        print_json({"workers": found})
        return
    columns = ("name", "version", "release", "queues", "running", "started_at", "heartbeat_at", "stopped_at")
    rows = [[_slots(row[name]) if name == "queues" else row[name] for name in columns] for row in found]
    print_table([name.replace("_", " ") for name in columns], rows, empty="no worker within the last hour")


def types(app: AppOption = None, url: UrlOption = None, schema: SchemaOption = None, as_json: JsonOption = False) -> None:
    """List the declared job types, each with its retry plan in words."""
    with session(app, url, schema) as opened:
        found = opened.run(ops.table("job_types", columns=_TYPES))
    if as_json:
        print_json({"types": [_in_seconds(row) for row in found]})
        return
    columns = ("name", "queue", "priority", "timeout", "lease", "expires", "max_attempts", "retry_words", "release")
    rows = [[row[name] for name in columns] for row in found]
    titles = ("name", "queue", "priority", "timeout", "lease", "expires", "attempts", "retries", "release")
    print_table(titles, rows, empty="no job types are declared; `rota sync` or a worker's start declares them")


def _at_least(count: int) -> str:
    return f"≥ {count:,}" if count >= COUNT_MAX else f"{count:,}"


def _slots(queues: dict[str, int | None]) -> str:
    return ", ".join(name if slots is None else f"{name}={slots}" for name, slots in queues.items())


def _in_seconds(row: dict[str, Any]) -> dict[str, Any]:
    durations = {f"{name}_s": None if row[name] is None else row[name].total_seconds() for name in _DURATIONS}
    return {name: value for name, value in row.items() if name not in _DURATIONS} | durations
