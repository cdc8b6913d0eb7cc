"""A job as a claim gives it to a worker, without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.model.job import Job

DUE = datetime(2026, 1, 1, tzinfo=UTC)


def make_job(id_: int = 1, **fields: Any) -> Job:
    """Make a job of the type `t` that was enqueued at `DUE`, and was due at once."""
    given: dict[str, Any] = {
        "id": id_, "origin_id": id_, "queue": "q", "job_type": "t", "payload_json": "{}",
        "payload_version": None, "priority": 0, "run_at": DUE, "expires_at": None, "attempts": 1,
        "max_attempts": None, "claims": 1, "idempotency_key": None, "meta_json": None,
        "created_at": DUE,
    }  # fmt: skip
    return Job(**given | fields)
