"""Moving the jobs of a table of somebody's own queue into Rota's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.client.schedules import put_schedule
from rota.errors import UsageError
from rota.model.cron import next_fire, read
from rota.store import ops
from rota.store.driver import Operation, Query

BATCH = 5_000
"""Rows that are moved in one transaction."""
FIRST_PLACE = "(0,0)"
"""A ctid before all others."""
NAMES = {
    "id": ("id",),
    "job_type": ("job_type", "type", "kind", "task", "name"),
    "payload": ("payload", "args", "data"),
    "status": ("status", "state"),
    "queue": ("queue",),
    "priority": ("priority",),
    "run_at": ("run_at", "next_run_at", "scheduled_at"),
    "attempts": ("attempts",),
    "max_attempts": ("max_attempts",),
    "idempotency_key": ("idempotency_key",),
    "last_error": ("last_error", "error"),
    "locked_at": ("locked_at",),
    "locked_until": ("locked_until",),
    "created_at": ("created_at",),
    "updated_at": ("updated_at",),
    "finished_at": ("finished_at", "completed_at"),
}
"""What Rota calls a column, and what such tables call it."""
MEANINGS = {
    "queued": ("queued", "pending", "scheduled", "ready", "new"),
    "running": ("running", "processing", "in_progress", "locked"),
    "failed": ("failed", "retrying"),
    "succeeded": ("succeeded", "done", "completed", "finished"),
    "dead": ("dead", "discarded"),
    "cancelled": ("cancelled", "canceled"),
}
"""What a status means, and what such tables call it. failed: with attempts left it is retried,
otherwise it is dead."""


class Found(msgspec.Struct, frozen=True):
    """Rows of a table that go the same way."""

    target: str | None
    """The status that they get; running: their worker still has them; old: history keeps no such
    day; None: their status is not known."""
    refusal: str | None
    """Why they stay."""
    jobs: int


class MovedBatch(msgspec.Struct, frozen=True):
    """A batch that was moved."""

    last_place: str | None
    """The ctid of the last row that was looked at; None: there was none."""
    moved: int
    held: int
    """Rows that stay, because another job has their key."""


def map_columns(columns: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each column that Rota reads, by Rota's name: as given, otherwise the first
    name that the table has. Raises UsageError without a type, or for a column that is none."""
    for ours, theirs in given.items():
        if ours not in NAMES:
            raise UsageError(f"--map {ours}=…: there is no {ours}; there are {', '.join(NAMES)}")
        if theirs not in columns:
            raise UsageError(f"--map {ours}={theirs}: the table has no column {theirs}")
    found = {
        ours: next(theirs for theirs in names if theirs in columns)
        for ours, names in NAMES.items()
        if not set(columns).isdisjoint(names)
    } | dict(given)
    if "job_type" not in found:
        raise UsageError(
            "no column says the type of a job: name it, as in --map job_type=task; "
            f"the table has {', '.join(columns)}"
        )
    return found


def make_spec(
    columns: Mapping[str, str], statuses: Mapping[str, str], queue: str | None, lease_s: float
) -> str:
    """Return how a table is read, as the functions of the schema take it. Raises UsageError."""
    known = {theirs: ours for ours, names in MEANINGS.items() for theirs in names}
    for theirs, ours in statuses.items():
        if ours not in MEANINGS:
            raise UsageError(f"--status {theirs}={ours}: it may mean {', '.join(MEANINGS)}")
        known[theirs.lower()] = ours
    spec = {"columns": columns, "statuses": known, "queue": queue, "lease_s": lease_s}
    return msgspec.json.encode(spec).decode()


def read_columns(table: str) -> Operation[tuple[str, list[str]]]:
    """Return the whole name of a table, and its columns. Raises UsageError: there is none."""
    found = yield Query("table_columns", {"table": table})
    if not found:
        raise UsageError(f"there is no table {table}: name it with its schema, as in public.jobs")
    return found[0][0], [row[1] for row in found]


def preview(table: str, spec: str) -> Operation[list[Found]]:
    """Return what `move` would do, without doing it."""
    return (yield from ops.ask_rows(Found, "import_preview", table=table, spec=spec))


def move(table: str, spec: str, after: str) -> Operation[MovedBatch]:
    """Move a batch of the rows behind a place. Run it in one transaction."""
    asked = {"table": table, "spec": spec, "after": after, "limit": BATCH}
    return (yield from ops.ask_row(MovedBatch, "import_move", **asked))


def leave_view(table: str, spec: str) -> Operation[str]:
    """Move the rest, and put a view in the place of the table, whose inserted rows become jobs;
    return the table's new name. Run it in one transaction."""
    return str((yield from ops.ask("import_view", table=table, spec=spec)))


def read_planned(table: str, spec: str) -> Operation[dict[str, datetime]]:
    """Return until when the runs of each type are planned in a table."""
    return dict((yield Query("import_planned", {"table": table, "spec": spec})))


def put_definition(row: dict[str, Any], until: datetime | None, **who: Any) -> Operation[None]:
    """Put a schedule that ticks only after the runs that are planned already. Run it in one
    transaction."""
    yield from put_schedule(row, "cli", **who)
    tick = None if until is None else next_fire(read(row["cron"], row["timezone"]), until)
    if tick is not None:
        yield Query("schedule_after", {"name": row["name"], "tick": tick})


def read_definitions(table: str) -> Operation[list[dict[str, Any]]]:
    """Return the rows of a table of definitions."""
    return [row[0] for row in (yield Query("import_rows", {"table": table}))]


def name_definitions(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return those with a schedule, each with a name: its type, with its id where two share it."""
    timed = [row for row in rows if row.get("schedule")]
    types = [row["job_type"] for row in timed]
    for row in timed:
        is_alone = types.count(row["job_type"]) == 1
        yield row["job_type"] if is_alone else f"{row['job_type']}-{row['id']}", row
