"""How jobs are claimed, and the news that a claim brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.model.job import Job
from rota.store.driver import Operation, Query, Row
from rota.store.errors import RowRefused


@dataclass(frozen=True, slots=True)
class Branches:
    """Where a claim looks: queue `q` owns the branches lo[q] … hi[q] (from 1), highest priority
    first."""

    queues: list[str]
    slots: list[int]
    lo: list[int]
    hi: list[int]
    priorities: list[int]
    after_run_at: list[datetime]
    after_id: list[int]
    depths: list[timedelta]


@dataclass(frozen=True, slots=True)
class Claimant:
    """The claiming worker, its release, and the types that it knows (aliases included).

    Each type has its lease, and whether its starts are recorded.
    """

    worker: str
    release: str
    types: list[str]
    leases: list[timedelta]
    records: list[bool]


class News(msgspec.Struct, frozen=True):
    """What a claim reports besides jobs."""

    look_back: list[tuple[str, datetime, datetime]] = []
    """(queue, look back to, asked at)"""
    priorities: list[tuple[str, int]] = []
    """(queue, a priority in use that the worker did not know)"""


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """A due job that the database refuses to every claim; it stays as it is."""

    id: int
    queue: str
    priority: int
    run_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of a claim.

    It has the statement's time by the database's clock, the jobs in the order to start them, and
    news.
    """

    started: datetime
    jobs: list[Job]
    news: News
    unrecorded: frozenset[int] = frozenset()
    """The jobs whose starts must be recorded before they begin."""
    suspects: frozenset[int] = frozenset()
    """The jobs whose last attempt was lost with its worker, which they may have killed."""
    paused: frozenset[str] = frozenset()
    """Queues that are paused: they gave no job, but may have due ones."""
    refused: tuple[RefusedClaim, ...] = ()
    """Due jobs that could not be claimed."""

    @property
    def seen(self) -> list[Job | RefusedClaim]:
        """The jobs that the statement reached, in the order of their turns."""
        return (
            sorted([*self.jobs, *self.refused], key=_start_order)
            if self.refused
            else list(self.jobs)
        )


_NO_NEWS = News()
_news = msgspec.json.Decoder(News)


def claim(
    who: Claimant,
    branches: Branches,
    limit: int,
    asked_since: list[datetime],
    known: dict[str, list[int]] | None,
    refused: Sequence[int] | None = (),
) -> Operation[Claimed]:
    """Claim due jobs with one statement.

    With `known`, look for priorities that are in use and not in it. If a row is at fault, claim
    around it and around the jobs that are known to be `refused`; None: do not.
    """
    params = {
        "worker": who.worker,
        "release": who.release,
        "types": who.types,
        "leases": who.leases,
        "records": who.records,
        "queues": branches.queues,
        "slots": branches.slots,
        "lo": branches.lo,
        "hi": branches.hi,
        "priorities": branches.priorities,
        "after_run_at": branches.after_run_at,
        "after_id": branches.after_id,
        "depths": branches.depths,
        "limit": limit,
        "asked_since": asked_since,
        "probe": known is not None,
        "known": msgspec.json.encode(known or {}).decode(),
    }
    try:
        rows = yield Query(
            "worker_claim", {**params, "refused": list(refused) if refused else None}
        )
    except RowRefused:
        if refused is None:
            raise
        rows = yield Query("worker_claim", {**params, "refused": []})
    return _read_claim(who, rows)


def _read_claim(who: Claimant, rows: list[Row]) -> Claimed:
    refused = tuple(
        RefusedClaim(row[2], row[4], row[8], row[9], row[22]) for row in rows if row[22] is not None
    )
    if refused:
        rows = [row for row in rows if row[22] is None] or [(*rows[0][:2], *[None] * 21)]
    started, news = rows[0][0], rows[0][1]
    jobs = [_job(row, who.worker) for row in rows if row[2] is not None]
    jobs.sort(key=_start_order)
    paused = frozenset(row[4] for row in rows if row[2] is None and row[4] is not None)
    return Claimed(
        started,
        jobs,
        _NO_NEWS if news is None else _news.decode(news),
        unrecorded=frozenset(row[2] for row in rows if row[17] is False),
        suspects=frozenset(row[2] for row in rows if row[19]),
        paused=paused,
        refused=refused,
    )


def _job(row: tuple[Any, ...], worker: str) -> Job:
    return Job(
        started_at=row[0],
        id=row[2],
        origin_id=row[3],
        queue=row[4],
        job_type=row[5],
        payload_json=row[6],
        payload_version=row[7],
        priority=row[8],
        run_at=row[9],
        expires_at=row[10],
        attempts=row[11],
        max_attempts=row[12],
        claims=row[13],
        idempotency_key=row[14],
        meta_json=row[15],
        created_at=row[16],
        losses=row[18] or 0,
        schedule=row[20],
        scheduled_for=row[21],
        locked_by=worker,
    )


def _start_order(job: Job | RefusedClaim) -> tuple[int, datetime, int]:
    return (-job.priority, job.run_at, job.id)


def look_back(queue: str, to: datetime) -> Operation[None]:
    """Ask all workers to search a queue again from `to` on."""
    yield Query("look_back", {"queue": queue, "to": to})


def request_notify(queues: Sequence[str], for_s: float) -> Operation[None]:
    """Ask producers to notify this worker of jobs in these queues for `for_s` seconds."""
    yield Query("notify_request", {"queues": sorted(queues), "until_s": for_s})
