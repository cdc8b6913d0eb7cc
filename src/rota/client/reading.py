"""How jobs are found, and waited for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rota.client.base import ID_MAX, LIST_MAX, Asking, check_id
from rota.duration import Duration, seconds
from rota.errors import JobNotFound, JoinTimeout, UsageError
from rota.job import Job, Status
from rota.options import check_integer, check_text
from rota.store import ops
from rota.store.ops import Filter

if TYPE_CHECKING:
    from rota.store.db import Operation

JOIN_POLL_S = (0.02, 0.5)
"""The first and the longest pause of a join. The end of a job notifies nobody: that would cost every job for the few that are waited for."""


class Reading(Asking):
    """Finds jobs, live and over."""

    def get(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return self.database.run(_get(id))

    async def aget(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return await self.database.arun(_get(id))

    def jobs(
        self,
        *,
        status: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        error_type: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Find jobs, live and over, the newest first; `before` an id for the next page. `limit` is 1 … 10,000."""
        wanted = Filter(
            status=status,
            job_type=job_type,
            queue=queue,
            idempotency_key=idempotency_key,
            error_type=error_type,
            before=before,
            limit=limit,
        )
        return self.database.run(ops.find(_checked(wanted)))

    async def ajobs(
        self,
        *,
        status: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        error_type: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Find jobs, live and over, the newest first; `before` an id for the next page. `limit` is 1 … 10,000."""
        wanted = Filter(
            status=status,
            job_type=job_type,
            queue=queue,
            idempotency_key=idempotency_key,
            error_type=error_type,
            before=before,
            limit=limit,
        )
        return await self.database.arun(ops.find(_checked(wanted)))

    def join(self, id: int, *, timeout: Duration | None = None) -> Job:
        """Wait until a job is over or dead, and return it. Raises JoinTimeout, JobNotFound."""
        timeout_s = None if timeout is None else seconds(timeout, name="timeout")
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := self.get(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job

    async def ajoin(self, id: int, *, timeout: Duration | None = None) -> Job:
        """Wait until a job is over or dead, and return it. Raises JoinTimeout, JobNotFound."""
        timeout_s = None if timeout is None else seconds(timeout, name="timeout")
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := await self.aget(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job


def _get(id: int) -> Operation[Job]:
    check_id(id)
    found = yield from ops.find(Filter(ids=[id]))
    if not found:
        raise JobNotFound(id)
    return found[0]


def _refuse_overdue(job: Job, started: float, timeout_s: float | None) -> None:
    if timeout_s is not None and time.monotonic() - started >= timeout_s:
        raise JoinTimeout(job.id, job.status, timeout_s)


def _checked(wanted: Filter) -> Filter:
    check_integer(wanted.limit, "limit", 1, LIST_MAX)
    if wanted.before is not None:
        check_integer(wanted.before, "before", 1, ID_MAX)
    for name, most in (("job_type", 200), ("queue", 100), ("idempotency_key", 255), ("error_type", 200)):
        if getattr(wanted, name) is not None:
            check_text(getattr(wanted, name), name, most)
    if wanted.status is not None and wanted.status not in list(Status):
        raise UsageError(f"status must be one of {', '.join(Status)}, not {wanted.status!r}")
    return wanted
