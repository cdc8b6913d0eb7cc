"""How jobs are found, and waited for."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rota.client.base import ID_MAX, LIST_MAX, Asking, check_id, moment, refuse_unknown
from rota.client.story import Story, tell
from rota.errors import JobNotFound, JoinTimeout, UsageError
from rota.model.bounds import KEY_MAX, NAME_MAX, QUEUE_MAX, check_integer, check_text
from rota.model.job import Job, Status
from rota.model.units import Duration, seconds
from rota.store import ops
from rota.store.ops import Filter, Stats

if TYPE_CHECKING:
    from rota.store.driver import Operation

ERROR_MAX = 500
"""Characters of an error's text to look for: what is stored has no more."""
HOURS_MAX = 24 * 31
"""Figures of so many hours at most are read at once."""
JOIN_POLL_S = (0.02, 0.5)
"""The first and the longest pause of a join. The end of a job notifies nobody: that would cost every job for the few that are waited for."""


class Search(TypedDict, total=False):
    """Which jobs to find."""

    status: str | None
    job_type: str | None
    queue: str | None
    idempotency_key: str | None
    error_type: str | None
    error: str | None
    since: datetime | Duration | None
    until: datetime | Duration | None
    before: int | None
    limit: int


class Reading(Asking):
    """Finds jobs, live and over."""

    def get(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return self._run(_get(id))

    async def aget(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return await self._arun(_get(id))

    def jobs(self, **which: Unpack[Search]) -> list[Job]:
        """Find jobs, live and over, the newest first. None is any; several must all be so.

        Args:
            status: as in `rota.Status`. Of the dead, those that still wait for a person.
            job_type, queue: of this type, in this queue.
            idempotency_key: who has the key is found at any time.
            error_type: the class of an attempt's error in that time, or of the last one of a job that is not over.
            error: a part of such an error's text, in any case.
            since: of jobs that are over, when they ended; of dead ones, when they died: an aware datetime, or how long ago, such as "2h".
                Jobs that are still to be done belong to now. Defaults to a day before `until`, for jobs that are over; all dead ones are found.
            until: until when; as `since`. Defaults to now.
            before: an id, for the next page: only jobs below it.
            limit: 1 … 10,000. Defaults to 100.
        """
        return self._run(ops.find(_wanted(which)))

    async def ajobs(self, **which: Unpack[Search]) -> list[Job]:
        """Find jobs, as `jobs` does."""
        return await self._arun(ops.find(_wanted(which)))

    def story(self, id: int) -> Story:
        """Return what happened to a job, step by step, and to those that it was requeued from and as. Raises JobNotFound."""
        return self._run(tell(_checked_id(id)))

    async def astory(self, id: int) -> Story:
        """Return what happened to a job, as `story` does."""
        return await self._arun(tell(_checked_id(id)))

    def stats(
        self, *, hours: int = 24, job_type: str | None = None, queue: str | None = None
    ) -> Stats:
        """Return how things stand, and how they went in the last hours. It reads no history, and counts up to 10,000.

        Args:
            hours: 1 … 744, the present one among them.
            job_type: only of this type; the counts by status and the oldest due job are of all.
            queue: only of this queue, in the same way.
        """
        return self._run(ops.stats(*_span(hours, job_type, queue)))

    async def astats(
        self, *, hours: int = 24, job_type: str | None = None, queue: str | None = None
    ) -> Stats:
        """Return how things stand, as `stats` does."""
        return await self._arun(ops.stats(*_span(hours, job_type, queue)))

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


def _wanted(which: Search) -> Filter:
    given: dict[str, Any] = dict(refuse_unknown(which, Search))
    return checked(
        Filter(
            **given
            | {name: moment(given[name], name) for name in ("since", "until") if name in given}
        )
    )


def _checked_id(id: int) -> int:
    check_id(id)
    return id


def _span(
    hours: int, job_type: str | None, queue: str | None
) -> tuple[int, str | None, str | None]:
    check_integer(hours, "hours", 1, HOURS_MAX)
    if job_type is not None:
        check_text(job_type, "job_type", NAME_MAX)
    if queue is not None:
        check_text(queue, "queue", QUEUE_MAX)
    return hours, job_type, queue


def _refuse_overdue(job: Job, started: float, timeout_s: float | None) -> None:
    if timeout_s is not None and time.monotonic() - started >= timeout_s:
        raise JoinTimeout(job.id, job.status, timeout_s)


_MOST = {
    "job_type": NAME_MAX,
    "queue": QUEUE_MAX,
    "idempotency_key": KEY_MAX,
    "error_type": NAME_MAX,
    "error": ERROR_MAX,
}
"""Characters of each."""


def checked(wanted: Filter) -> Filter:
    """Return what is looked for. Raises UsageError where it can be no such thing."""
    check_integer(wanted.limit, "limit", 1, LIST_MAX)
    if wanted.before is not None:
        check_integer(wanted.before, "before", 1, ID_MAX)
    for name, most in _MOST.items():
        if getattr(wanted, name) is not None:
            check_text(getattr(wanted, name), name, most)
    if wanted.status is not None and wanted.status not in list(Status):
        raise UsageError(f"status must be one of {', '.join(Status)}, not {wanted.status!r}")
    return wanted
