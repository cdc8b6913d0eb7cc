"""The jobs that a worker holds: claimed, running, or ended and not yet written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.declare.job_type import JobType
    from rota.model.job import Job
    from rota.model.outcome import End


@dataclass(slots=True)
class Unwritten:
    """An end that the database refuses while it takes others."""

    since: float
    tries: int = 0
    again_at: float = 0.0
    is_told: bool = False
    """Whether an event has said so."""


class Held:
    """One claim. Times are monotonic seconds, counted from before the claim was sent: so the lease is never thought longer than it is."""

    __slots__ = (
        "admitted",
        "begun_at",
        "claimed_at",
        "context",
        "end",
        "is_suspect",
        "job",
        "job_type",
        "lease_s",
        "lost",
        "must_end_at",
        "ran_s",
        "renewed_at",
        "started_at",
        "task",
        "told",
        "unsure",
        "unwritten",
    )

    def __init__(
        self, job: Job, job_type: JobType[..., ..., Any], claimed_at: float, lease_s: float
    ) -> None:
        self.job = job
        self.is_suspect = job.suspected is True
        """Whether its last attempt was lost with a worker: it may be what killed it."""
        self.job_type = job_type
        self.claimed_at = claimed_at
        self.renewed_at = claimed_at
        self.lease_s = lease_s
        self.started_at: float | None = None
        self.admitted = False
        """Whether it has a slot: from then on its lease is renewed."""
        self.begun_at: float | None = None
        """When the handler took its first step; None before that."""
        self.ran_s: float | None = None
        self.task: asyncio.Task[None] | None = None
        """The task of an async handler, or the one that waits for a process; None for a thread's."""
        self.context: Context | None = None
        self.end: End | None = None
        """What it came to; None while it is buffered or runs."""
        self.told: End | None = None
        """What the attempt comes to if its handler stops because the worker told it to; None while it was not told."""
        self.must_end_at: float | None = None
        """When the attempt ends even if its handler goes on; None while it need not stop."""
        self.unsure = False
        """Whether a write of its end may or may not have been committed: the answer was lost with the connection."""
        self.unwritten: Unwritten | None = None
        """That the database refuses to take its end; None while it has not."""
        self.lost = False
        """Whether another has the job by now: nothing of it may be written."""

    def may_start(self, now: float) -> bool:
        """Whether at least a quarter of the lease is left."""
        return now - self.renewed_at <= self.lease_s * 0.75

    def late_s(self, now: float) -> float:
        """How long a job that has an expiry is past it, negative before it. By the database's clock at the claim and ours since."""
        assert self.job.expires_at is not None
        assert self.job.started_at is not None
        return now - self.claimed_at - (self.job.expires_at - self.job.started_at).total_seconds()


HeldJobs = dict[int, Held]
"""By job id. Written by the worker's loop only; the lease keeper's thread reads a copy."""
