"""Recurring operations: partitions, batches, declarations, heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from rota.store import isolate
from rota.store.driver import Operation, Query, Row
from rota.store.errors import PartitionMissing, RowLocked, RowRefused
from rota.store.isolate import Refusals

T = TypeVar("T")

PARTITION_DAYS = 7
"""Days for which partitions are made ahead: a running worker has six days to spare."""


def ensure_partitions(days: int = PARTITION_DAYS) -> Operation[int]:
    """Create the partitions of today and of these days ahead; return how many were created."""
    return (yield Query("partitions_ensure", {"days": days}))[0][0]  # type: ignore[no-any-return]


def retry_with_partitions(
    write: Callable[[], Operation[T]], *, tried: PartitionMissing | None = None
) -> Operation[T]:
    """Write; if the day's partition is missing, create it and write again.

    `tried`: the error of a first try; None: it was not tried yet.
    """
    if tried is None:
        try:
            return (yield from write())
        except PartitionMissing:
            pass
    yield from ensure_partitions()
    return (yield from write())


def take_batch(
    statement: str,
    params: dict[str, Any],
    candidates: Query,
) -> Operation[tuple[list[Row], Refusals]]:
    """Run a statement that takes what it finds; if a row may be at fault, isolate that row.

    `candidates` finds the ids of what the statement would take. Returns the rows of all runs, first
    the row of a run that takes nothing, and the database's error for each job that it refuses.
    """

    def take(only: Sequence[int] | None) -> Operation[list[Row]]:
        return retry_with_partitions(lambda: _run(Query(statement, {**params, "only": only})))

    try:
        return (yield from take(None)), {}
    except (RowRefused, RowLocked) as error:
        tried = error
    ids = [row[0] for row in (yield candidates)]
    rows = yield from take([])
    # Not all of them again: if that takes too long, no time would be left.
    waits_until = monotonic() + isolate.WAIT_S
    isolated = yield from isolate.isolate(ids, take, tried=tried, waits_until=waits_until)
    return [*rows, *(row for some in isolated.answers for row in some)], dict(isolated.refused)


def _run(query: Query) -> Operation[list[Row]]:
    return (yield query)


def declare(types: str, release: str) -> Operation[int]:
    """Declare job types, a JSON array of what `job_type_declare` takes."""
    rows = yield Query("job_type_declare", {"types": types, "release": release})
    return rows[0][0]  # type: ignore[no-any-return]


COUNTS = ("succeeded", "failed", "dead", "rejected")
"""A worker's counters since its start, sent with each heartbeat.

`rejected`: results of jobs that it had lost by then.
"""


def write_heartbeat(worker: dict[str, Any]) -> Operation[int]:
    """Write a worker's heartbeat and its counters; return how many workers are alive."""
    rows = yield Query("worker_heartbeat", {"slots": None, **dict.fromkeys(COUNTS, 0), **worker})
    return rows[0][0]  # type: ignore[no-any-return]


def stop(worker: str, counts: Mapping[str, int] | None = None) -> Operation[None]:
    """Record that a worker stopped, with its counters; without counters they stay as they were."""
    yield Query(
        "worker_stop",
        {
            "name": worker,
            **{name: None if counts is None else counts.get(name, 0) for name in COUNTS},
        },
    )
