"""What somebody must do now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.store.db import Operation, Query

PARTITION_DAYS = 7
"""Partitions are made so many days ahead; a worker that is up makes each week's in time, with six days to spare."""


def ensure_partitions(days: int = PARTITION_DAYS) -> Operation[int]:
    """Make the partitions of today and so many days ahead; return how many were made."""
    return (yield Query("partitions_ensure", {"days": days}))[0][0]  # type: ignore[no-any-return]


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
    yield Query("worker_stop", {"name": worker, **{name: None if counts is None else counts.get(name, 0) for name in COUNTS}})
