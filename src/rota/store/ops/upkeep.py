"""What somebody must do now and then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.store.db import Operation, Query
from rota.store.trouble import PartitionMissing

PARTITION_DAYS = 7
"""Partitions are made so many days ahead; a worker that is up makes each week's in time, with six days to spare."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """A job whose worker had let its lease expire; `claim` and `worker` are those that lost it."""

    job: int
    job_type: str
    claim: int
    attempt: int
    worker: str
    status: str
    run_at: datetime
    reason: str | None
    """Why somebody had called it off."""


def reap(since: datetime, limit: int, steady_s: float | None = None) -> Operation[tuple[datetime, list[Reaped]]]:
    """Take jobs whose leases expired after `since` from their workers; return the database's clock as well. `steady_s`: how long ago the asking
    worker's own connection came back; None: it was not away."""
    params = {"since": since, "limit": limit, "steady_s": steady_s}
    try:
        rows = yield Query("job_reap", params)
    except PartitionMissing:
        yield from ensure_partitions()
        rows = yield Query("job_reap", params)
    return rows[0][0], [Reaped(*row[1:]) for row in rows if row[1] is not None]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job that was not started before its expiry, with what held it up; `claim` is the last one it had, `attempt` the one that did not come about."""

    job: int
    job_type: str
    claim: int
    attempt: int
    expires_at: datetime
    message: str


def expire(worker: str, after: datetime, after_id: int, limit: int) -> Operation[tuple[datetime, list[Overdue]]]:
    """End waiting jobs whose expiry has passed, behind the key (expires_at, id) given; return the database's clock as well."""
    params = {"worker": worker, "after": after, "after_id": after_id, "limit": limit}
    try:
        rows = yield Query("job_expire", params)
    except PartitionMissing:
        yield from ensure_partitions()
        rows = yield Query("job_expire", params)
    return rows[0][0], [Overdue(*row[1:]) for row in rows if row[1] is not None]


def ensure_partitions() -> Operation[int]:
    """Make the partitions of today and the days ahead; return how many were missing."""
    return (yield Query("partitions_ensure", {"days": PARTITION_DAYS}))[0][0]  # type: ignore[no-any-return]


def declare(types: str, release: str) -> Operation[int]:
    """Declare job types, a JSON array of what `job_type_declare` takes."""
    return (yield Query("job_type_declare", {"types": types, "release": release}))[0][0]  # type: ignore[no-any-return]


def beat(worker: dict[str, Any]) -> Operation[int]:
    """Say that a worker is alive; return how many are."""
    return (yield Query("worker_beat", worker))[0][0]  # type: ignore[no-any-return]


def stop(worker: str) -> Operation[None]:
    """Say that a worker stopped."""
    yield Query("worker_stop", {"name": worker})
