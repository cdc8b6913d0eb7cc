"""How things are recorded: every store operation, as a generator of queries. Nothing here waits, sleeps or decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import psycopg

from rota.errors import RotaError
from rota.job import Job, Status, Transition
from rota.store.db import Operation, PartitionMissing, Query, Row

INSERT_MAX = 1_000
"""Rows of one INSERT."""
KEY_TRIES = 5
"""How often an enqueue is repeated when the job that held its key was cancelled just then."""
PARTITION_DAYS = 7
"""Partitions are made so many days ahead; a worker that is up makes each week's in time, with six days to spare."""


# Enqueue


@dataclass(frozen=True, slots=True)
class NewRow:
    """A job to insert. The columns of `job`; a delay and a time to expire are seconds that the database adds to its clock."""

    queue: str
    job_type: str
    payload: str
    payload_version: int | None
    priority: int
    run_at: datetime | None
    delay_s: float | None
    expires_s: float | None
    max_attempts: int | None
    idempotency_key: str | None
    meta: str | None


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of a row: its id, or that of the job that holds its key."""

    id: int
    created: bool
    status: str


def insert(row: NewRow) -> Operation[Inserted]:
    """Insert one job: one statement, and one more when its key is taken."""
    params = {name: getattr(row, name) for name in row.__slots__}
    for _ in range(KEY_TRIES):
        found = yield Query("job_insert", params)
        if found:
            return Inserted(found[0][0], True, Status.QUEUED)
        holders = yield Query("key_holders", {"job_types": [row.job_type], "keys": [row.idempotency_key]})
        if holders:
            return Inserted(holders[0][1], False, holders[0][2])
    raise _key_contended(row)


def insert_many(rows: Sequence[NewRow]) -> Operation[list[Inserted]]:
    """Insert jobs in bulk; results are in the order of the input. Run it in one transaction.

    Keys are taken in sorted order over the whole call, so that two bulks with the same keys cannot deadlock, while ids ascend in the order of the
    input: that is why they are reserved first.
    """
    if not rows:
        return []
    reserved = yield Query("job_reserve", {"count": len(rows)})
    ids = [row[0] for row in reserved]
    results: dict[int, Inserted] = {}
    pending = sorted(range(len(rows)), key=lambda at: _lock_order(rows[at], at))
    for _ in range(KEY_TRIES):
        refused: list[int] = []
        for start in range(0, len(pending), INSERT_MAX):
            chunk = pending[start : start + INSERT_MAX]
            found = yield Query("job_insert_many", _columns([rows[at] for at in chunk], [ids[at] for at in chunk]))
            inserted = {row[0] for row in found}
            for at in chunk:
                if ids[at] in inserted:
                    results[at] = Inserted(ids[at], True, Status.QUEUED)
                else:
                    refused.append(at)
        if refused:
            asked = {"job_types": [rows[at].job_type for at in refused], "keys": [rows[at].idempotency_key for at in refused]}
            for place, holder, status in (yield Query("key_holders", asked)):
                results[refused[place - 1]] = Inserted(holder, False, status)
        pending = [at for at in refused if at not in results]
        if not pending:
            return [results[at] for at in range(len(rows))]
    raise _key_contended(rows[pending[0]])


def _lock_order(row: NewRow, at: int) -> tuple[bool, bytes, bytes, int]:
    # The order of the INSERT itself: by code point, as collate "C" has it.
    if row.idempotency_key is None:
        return (True, b"", b"", at)
    return (False, row.job_type.encode(), row.idempotency_key.encode(), at)


def _columns(rows: Sequence[NewRow], ids: list[int]) -> dict[str, Any]:
    return {
        "ids": ids,
        "queues": [row.queue for row in rows],
        "job_types": [row.job_type for row in rows],
        "payloads": [row.payload for row in rows],
        "payload_versions": [row.payload_version for row in rows],
        "priorities": [row.priority for row in rows],
        "run_ats": [row.run_at for row in rows],
        "delays_s": [row.delay_s for row in rows],
        "expires_s": [row.expires_s for row in rows],
        "max_attempts": [row.max_attempts for row in rows],
        "idempotency_keys": [row.idempotency_key for row in rows],
        "metas": [row.meta for row in rows],
    }


def _key_contended(row: NewRow) -> RotaError:
    return RotaError(
        f"the idempotency key {row.idempotency_key!r} of job type {row.job_type!r} was taken and freed {KEY_TRIES} times while this call "
        "tried to insert; nothing was inserted, try again"
    )


def payload_bytes_max() -> Operation[int]:
    """Read the payload limit of this schema, in bytes."""
    return (yield Query("payload_bytes_max"))[0][0]  # type: ignore[no-any-return]


# Claim


@dataclass(frozen=True, slots=True)
class Branches:
    """Where a claim looks: queue `q` owns the branches lo[q] … hi[q] (from 1), highest priority first."""

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
    """Who claims: the worker, its release, and the types that it knows (aliases included) with their leases."""

    worker: str
    release: str
    types: list[str]
    leases: list[timedelta]


class News(msgspec.Struct, frozen=True):
    """What a claim tells besides jobs."""

    look_back: list[tuple[str, datetime, datetime]] = []
    """(queue, look back to, asked at)"""
    priorities: list[tuple[str, int]] = []
    """(queue, a priority in use that the worker did not know)"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim brought: the statement's time on the database's clock, jobs in the order to start them, and news."""

    started: datetime
    jobs: list[Job]
    news: News


_NO_NEWS = News()
_news = msgspec.json.Decoder(News)


def claim(
    who: Claimant, branches: Branches, limit: int, asked_since: datetime, known: dict[str, list[int]] | None
) -> Operation[Claimed]:
    """Claim due jobs: one statement. With `known`, probe for priorities that are in use and not in it."""
    rows = yield Query(
        "job_claim",
        {
            "worker": who.worker,
            "release": who.release,
            "types": who.types,
            "leases": who.leases,
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
        },
    )
    started, news = rows[0][0], rows[0][1]
    worker = who.worker
    jobs = [
        Job(
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
            locked_by=worker,
            started_at=started,
        )
        for row in rows
        if row[2] is not None
    ]
    jobs.sort(key=_start_order)
    return Claimed(started, jobs, _NO_NEWS if news is None else _news.decode(news))


def _start_order(job: Job) -> tuple[int, datetime, int]:
    return (-job.priority, job.run_at, job.id)


def look_back(queue: str, to: datetime) -> Operation[None]:
    """Ask all workers to look at a queue again from `to` on."""
    yield Query("look_back", {"queue": queue, "to": to})


def ring_me(queues: Sequence[str], for_s: float) -> Operation[None]:
    """Ask producers to ring for these queues for so long."""
    yield Query("bell_set", {"queues": sorted(queues), "until_s": for_s})


# Hold, end, give back


def renew(held: Sequence[tuple[int, int]], who: Claimant) -> Operation[set[int]]:
    """Renew the leases of (id, claims); return the ids still held."""
    ids, claims = [id_ for id_, _ in held], [claim for _, claim in held]
    rows = yield Query("job_renew", {"ids": ids, "claims": claims, "types": who.types, "leases": who.leases})
    return {row[0] for row in rows}


class Ending(msgspec.Struct, frozen=True):
    """What is to be written for one attempt."""

    job: Job
    transition: Transition
    ran_s: float | None
    """Seconds since the handler began; None when it did not."""


class Written(msgspec.Struct, frozen=True):
    """What a claim that was still held came to: the stored status, and run_at where the job runs again."""

    status: str
    run_at: datetime | None = None


def finish(endings: Sequence[Ending], release: str) -> Operation[dict[int, Written]]:
    """Move jobs that are over to history. Ids that are missing from the answer were no longer held.

    A result that the database cannot store is left out; it never changes the outcome, and never stops the others of its batch.
    """
    try:
        return (yield from _finish(endings, release, with_results=True))
    except PartitionMissing:
        yield from ensure_partitions()
        return (yield from _finish(endings, release, with_results=True))
    except psycopg.DataError:
        if len(endings) == 1:
            return (yield from _finish(endings, release, with_results=False))
    written: dict[int, Written] = {}
    for ending in endings:
        written.update((yield from finish([ending], release)))
    return written


def _finish(endings: Sequence[Ending], release: str, *, with_results: bool) -> Operation[dict[int, Written]]:
    rows = yield Query(
        "job_finish",
        {
            "ids": [ending.job.id for ending in endings],
            "claims": [ending.job.claims for ending in endings],
            "statuses": [ending.transition.status.value for ending in endings],
            "ran_s": [ending.ran_s for ending in endings],
            "results": [ending.transition.result_json if with_results else None for ending in endings],
            "reasons": [ending.transition.reason if with_results else None for ending in endings],
            "release": release,
        },
    )
    ended = {row[0] for row in rows}
    return {ending.job.id: Written(ending.transition.status.value) for ending in endings if ending.job.id in ended}


def give_back(endings: Sequence[Ending], release: str) -> Operation[dict[int, Written]]:
    """Take jobs that are not over out of `running`. Ids that are missing from the answer were no longer held."""
    outcomes = msgspec.json.encode([_outcome(ending) for ending in endings]).decode()
    try:
        rows = yield Query("job_return", {"outcomes": outcomes, "release": release})
    except PartitionMissing:
        yield from ensure_partitions()
        rows = yield Query("job_return", {"outcomes": outcomes, "release": release})
    return {row[0]: Written(row[1], row[2]) for row in rows}


def _outcome(ending: Ending) -> dict[str, Any]:
    transition, failure = ending.transition, ending.transition.failure
    outcome: dict[str, Any] = {
        "id": ending.job.id,
        "claims": ending.job.claims,
        "status": transition.status.value,
        "charged": transition.charged,
        "delay_s": transition.delay_s,
        "ran_s": ending.ran_s,
        "misfit": transition.misfit,
    }
    if failure is not None:
        outcome |= {
            "error_type": failure.error_type,
            "message": failure.message,
            "verdict": failure.verdict,
            "verdict_rule": failure.verdict_rule,
            "response_code": failure.response_code,
            "stack": failure.stack,
        }
    return outcome


# Upkeep


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


def reap(since: datetime, limit: int) -> Operation[tuple[datetime, list[Reaped]]]:
    """Take jobs whose leases expired after `since` from their workers; return the database's clock as well."""
    params = {"since": since, "limit": limit}
    try:
        rows = yield Query("job_reap", params)
    except PartitionMissing:
        yield from ensure_partitions()
        rows = yield Query("job_reap", params)
    return rows[0][0], [Reaped(*row[1:]) for row in rows if row[1] is not None]


def ensure_partitions() -> Operation[int]:
    """Make the partitions of today and the days ahead; return how many were missing."""
    return (yield Query("partitions_ensure", {"days": PARTITION_DAYS}))[0][0]  # type: ignore[no-any-return]


def declare(types: str, release: str) -> Operation[int]:
    """Declare job types, a JSON array of what `job_type_declare` takes."""
    return (yield Query("job_type_declare", {"types": types, "release": release}))[0][0]  # type: ignore[no-any-return]


def beat(worker: dict[str, Any]) -> Operation[None]:
    """Say that a worker is alive."""
    yield Query("worker_beat", worker)


def stop(worker: str) -> Operation[None]:
    """Say that a worker stopped."""
    yield Query("worker_stop", {"name": worker})


# Read


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


_JOB_COLUMNS = (
    "id origin_id queue job_type payload_json payload_version priority run_at expires_at attempts max_attempts claims idempotency_key meta_json "
    "created_at status locked_by locked_until last_error error_type response_code verdict verdict_rule updated_at started_at failed_at finished_at "
    "result_json release"
).split()


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
