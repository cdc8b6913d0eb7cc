"""Calls that find and read jobs, and wait for a job."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, Unpack

from rota.client.base import (
    ID_MAX,
    LIST_MAX,
    TEXTS_MAX,
    Caller,
    JobFilters,
    check_id,
    check_texts,
    encode_part,
    parse_moment,
    refuse_unknown,
)
from rota.client.both import awaitable, both
from rota.declare.connection import AnyConnection
from rota.errors import JoinTimeout, UsageError
from rota.model.bounds import check_bool, check_integer
from rota.model.job import Job, Status, StatusName
from rota.model.units import Duration, seconds
from rota.store import ops
from rota.store.driver import Operation

JOIN_POLL_S = (0.02, 0.5)
"""The first and the longest pause of a `join` between two looks. The end of a job sends no
notification, which every job would pay for."""


class Search(JobFilters, total=False):
    """The filters of a search. A job must match all; None matches any job."""

    status: StatusName | None
    """Jobs with this `rota.Status`. `dead`: without archived jobs."""
    key: str | None
    """Jobs with this key. The job that holds the key now is found at any age."""
    batch: int | None
    """Members of this batch, of any age."""
    error_type: str | None
    """Jobs with this error class in any attempt of the period; unfinished jobs: in the last."""
    error: str | None
    """Jobs with this text in such an error, 1 … 500 characters; "…" stands for any text. Case is
    ignored."""
    since: datetime | Duration | None
    """Start of the period in which a job finished or died: an aware datetime, or how long ago, such
    as "2h". Unfinished jobs belong to now. Defaults to a day before `until` for finished jobs, to
    no limit for dead ones."""
    until: datetime | Duration | None
    """End of the period, as `since`. Defaults to now."""
    waiting: bool
    """Only jobs with `waits_for`: a group, a limit, a breaker or other jobs hold them back, and
    `Job.wait` says how. Jobs of a paused queue are not among them."""
    before: int | None
    """Only jobs with a smaller id, for the next page."""
    limit: int
    """Maximum number of jobs, 1 … 10,000. Defaults to 100."""


class FindCalls(Caller):
    """The calls of an App that read jobs."""

    @both
    def get(self, id: int, *, connection: AnyConnection | None = None) -> Operation[Job]:
        """Return a job, unfinished or finished.

        Args:
            connection: yours, whose transaction it joins. Defaults to a connection of the App's.

        Raises:
            JobNotFound: there is no such job.
        """
        return ops.get(check_id(id))

    aget = awaitable(get)

    @both
    def find(
        self, *, connection: AnyConnection | None = None, **filters: Unpack[Search]
    ) -> Operation[list[Job]]:
        """Find unfinished and finished jobs, the newest first.

        Args:
            connection: as for `get`.
            filters: the keys of `Search`, each documented there.
        """
        return _find(check_search(filters))

    afind = awaitable(find)

    def join(self, id: int, *, timeout: Duration | None = None) -> Job:
        """Wait until a job is finished or dead, and return it.

        Args:
            timeout: how long to wait. Defaults to no limit.

        Raises:
            JoinTimeout: the job was neither in that time. The job continues.
            JobNotFound: there is no such job.
        """
        timeout_s = None if timeout is None else seconds(timeout, name="timeout")
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := self.get(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job

    async def ajoin(self, id: int, *, timeout: Duration | None = None) -> Job:
        """Wait until a job is finished or dead, and return it. Raises as `join`."""
        timeout_s = None if timeout is None else seconds(timeout, name="timeout")
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := await self.aget(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job


def _find(wanted: dict[str, Any]) -> Operation[list[Job]]:
    found = yield from ops.find(**wanted)
    # Only then: a reader of the view `jobs` may lack the rights to explain a wait.
    return (yield from ops.explain(found)) if wanted["waiting"] else found


def check_search(search: Search) -> dict[str, Any]:
    """Return the filters of `ops.find`. Raises UsageError for an unknown name or a bad value."""
    filters: dict[str, Any] = ops.ANY_JOB | refuse_unknown(search, Search)
    for name in ("since", "until"):
        filters[name] = parse_moment(filters[name], name)
    for name in ("payload", "meta"):
        filters[name] = encode_part(filters[name], name)
    check_integer(filters["limit"], "limit", 1, LIST_MAX)
    check_bool(filters["waiting"], "waiting")
    if filters["before"] is not None:
        check_integer(filters["before"], "before", 1, ID_MAX)
    if filters["batch"] is not None:
        check_id(filters["batch"])
    check_texts(**{name: filters.get(name) for name in TEXTS_MAX})
    status = filters["status"]
    if status is not None and status not in list(Status):
        raise UsageError(f"status must be one of {', '.join(Status)}, not {status!r}")
    return filters


def _refuse_overdue(job: Job, started: float, timeout_s: float | None) -> None:
    if timeout_s is not None and time.monotonic() - started >= timeout_s:
        raise JoinTimeout(job.id, job.status, timeout_s)
