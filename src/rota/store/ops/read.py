"""What can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rota.job import Job, Status
from rota.store.db import Operation, Query, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs to find; None is any."""

    ids: list[int] | None = None
    status: str | None = None
    job_type: str | None = None
    queue: str | None = None
    idempotency_key: str | None = None
    error_type: str | None = None
    before: int | None = None
    limit: int = 100


_JOB_COLUMNS = [
    "id",
    "origin_id",
    "queue",
    "job_type",
    "payload_json",
    "payload_version",
    "priority",
    "run_at",
    "expires_at",
    "attempts",
    "max_attempts",
    "claims",
    "idempotency_key",
    "meta_json",
    "schedule",
    "scheduled_for",
    "created_at",
    "status",
    "locked_by",
    "locked_until",
    "losses",
    "cancel_requested_at",
    "cancel_reason",
    "progress_json",
    "last_error",
    "error_type",
    "response_code",
    "verdict",
    "verdict_rule",
    "updated_at",
    "started_at",
    "failed_at",
    "finished_at",
    "result_json",
    "release",
    "resolution_json",
]


def find(wanted: Filter) -> Operation[list[Job]]:
    """Find jobs, live and over, the newest first."""
    rows = yield Query("jobs", {name: getattr(wanted, name) for name in wanted.__slots__})
    return [_job(row) for row in rows]


def _job(row: Row) -> Job:
    facts = dict(zip(_JOB_COLUMNS, row, strict=True))
    facts["status"] = Status(facts["status"])
    return Job(**facts)


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that did not succeed: a row of `attempt`."""

    claim: int
    attempt: int
    worker: str
    release: str | None
    started_at: datetime | None
    finished_at: datetime
    outcome: str
    error_type: str | None
    message: str | None
    verdict: str | None
    verdict_rule: str | None
    response_code: int | None
    stack: str | None
    next_run_at: datetime | None


def attempts(job: int) -> Operation[list[Attempt]]:
    """Read the attempts of a job that did not succeed, in order."""
    return [Attempt(*row) for row in (yield Query("attempts", {"job": job}))]


def oldest_due() -> Operation[tuple[datetime, float] | None]:
    """Read when the oldest due job was due, and for how many seconds it has been waiting; None when nothing is due."""
    at, waiting_s = (yield Query("oldest_due"))[0]
    return None if at is None else (at, waiting_s)


def table(name: str, params: dict[str, Any] | None = None, *, columns: Sequence[str]) -> Operation[list[dict[str, Any]]]:
    """Read one of the overviews (stats, queues, workers, job_types) as dicts."""
    rows = yield Query(name, params or {})
    return [dict(zip(columns, row, strict=True)) for row in rows]
