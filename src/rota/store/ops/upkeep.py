"""What somebody must do now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from rota.store import isolate
from rota.store.driver import Operation, Query, Row
from rota.store.errors import PartitionMissing, RowLocked, RowRefused
from rota.store.isolate import Refusals

T = TypeVar("T")

PARTITION_DAYS = 7
"""Partitions are made so many days ahead; a worker that is up makes each week's in time, with six days to spare."""


def ensure_partitions(days: int = PARTITION_DAYS) -> Operation[int]:
    """Make the partitions of today and so many days ahead; return how many were made."""
    return (yield Query("partitions_ensure", {"days": days}))[0][0]  # type: ignore[no-any-return]


def retry_with_partitions(write: Callable[[], Operation[T]]) -> Operation[T]:
    """Write; where the day's partition is missing, make it and write again."""
    try:
        return (yield from write())
    except PartitionMissing:
        yield from ensure_partitions()
        return (yield from write())


def take_batch(
    statement: str,
    params: dict[str, Any],
    candidates: Query,
) -> Operation[tuple[list[Row], Refusals]]:
    """Run a statement that takes what it finds; where a row may be at fault, isolate that row.

    `candidates` finds the ids of what the statement would take. Returns the rows of all runs, the
    first from a run that takes nothing, and what the database says of each job that it refuses.
    """

    def take(only: Sequence[int] | None) -> Operation[list[Row]]:
        return retry_with_partitions(lambda: _run(Query(statement, {**params, "only": only})))

    with suppress(RowRefused, RowLocked):
        return (yield from take(None)), {}
    ids = [row[0] for row in (yield candidates)]
    rows = yield from take([])
    # Not all of them again: where that takes too long, the time would be over with it.
    waits_until = monotonic() + isolate.WAIT_S
    isolated = yield from isolate.isolate(ids, take, is_tried=True, waits_until=waits_until)
    return [*rows, *(row for some in isolated.answers for row in some)], dict(isolated.refused)


def _run(query: Query) -> Operation[list[Row]]:
    return (yield query)


def declare(types: str, release: str) -> Operation[int]:
    """Declare job types, a JSON array of what `job_type_declare` takes."""
    return (yield Query("job_type_declare", {"types": types, "release": release}))[0][0]  # type: ignore[no-any-return]


COUNTS = ("succeeded", "failed", "dead", "rejected")
"""What a worker counts since it began, and says with each sign of life. `rejected`: what it had to write for jobs that it had lost by then."""


def beat(worker: dict[str, Any]) -> Operation[int]:
    """Say that a worker is alive, and what it has counted so far; return how many are."""
    return (yield Query("worker_beat", {"slots": None, **dict.fromkeys(COUNTS, 0), **worker}))[0][0]  # type: ignore[no-any-return]


def stop(worker: str, counts: Mapping[str, int] | None = None) -> Operation[None]:
    """Say that a worker stopped, and what it has counted; without counts they stay as they were."""
    yield Query(
        "worker_stop",
        {
            "name": worker,
            **{name: None if counts is None else counts.get(name, 0) for name in COUNTS},
        },
    )
