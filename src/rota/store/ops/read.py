"""What can be read: jobs, attempts and overviews."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.errors import JobNotFound
from rota.model.job import Job, Status
from rota.model.record import Record
from rota.store.columns import JOB
from rota.store.driver import Operation, Query, Row

ANY_JOB: dict[str, Any] = {
    "limit": 100,
    "waiting": False,
    **dict.fromkeys(("ids", "status", "job_type", "queue", "key", "group_key", "batch", "before")),
    **dict.fromkeys(("payload", "meta", "error_type", "error", "since", "until")),
}
"""The filters that find any job: the filters of `Search`, and the ids of jobs."""


def find(**filters: Any) -> Operation[list[Job]]:
    """Find jobs, live and finished, newest first. `payload` and `meta` are texts of JSON."""
    params = ANY_JOB | filters
    params |= instant_or_ago("since", params["since"]) | instant_or_ago("until", params["until"])
    return [_job(row) for row in (yield Query("job_search", params))]


def get(id_: int) -> Operation[Job]:
    """Read a job. A live job costs a tenth of a search. Raises JobNotFound."""
    rows = yield Query("job_live", {"id": id_})
    found = [_job(row) for row in rows] or (yield from find(ids=[id_]))
    if not found:
        raise JobNotFound(id_)
    return found[0]


def instant_or_ago(
    name: str, given: datetime | timedelta | None
) -> dict[str, datetime | timedelta | None]:
    """Return the two parameters for a time: the database's clock says when "an hour ago" was."""
    ago = isinstance(given, timedelta)
    return {name: None if ago else given, f"{name}_ago": given if ago else None}


def _job(row: Row) -> Job:
    facts = dict(zip(JOB, row, strict=True))
    facts["status"] = Status(facts["status"])
    return Job(**facts)


class AttemptRecord(Record, frozen=True):
    """An attempt that did not succeed: a row of `attempt`."""

    claim: int
    """The value of the job's `claims` under which it ran."""
    attempt: int
    """Number of the attempt, from 1."""
    worker: str
    """Name of the worker that ran it."""
    release: str | None
    """Release of that worker's code; None: the worker did not end the attempt itself."""
    started_at: datetime | None
    """When the handler began, an aware datetime; None: it did not begin."""
    finished_at: datetime
    """When its end was recorded, an aware datetime."""
    outcome: str
    """The job's status after it: `failed`, `dead`, `queued` or `cancelled`."""
    error_type: str | None
    """Class name of the error; None: none is recorded."""
    message: str | None
    """Text of the error; None: none is recorded."""
    verdict: str | None
    """`transient` or `fatal`: whether another attempt can help; None: none is recorded."""
    verdict_rule: str | None
    """The rule that gave the verdict; None: there is no verdict."""
    response_code: int | None
    """HTTP or SMTP status code of the error; None: it has none."""
    stack: str | None
    """Traceback of the error; None: there is none."""
    next_run_at: datetime | None
    """When the job was due again, an aware datetime; None: it was dead or cancelled."""


def attempts(job: int) -> Operation[list[AttemptRecord]]:
    return [AttemptRecord(*row) for row in (yield Query("attempts", {"job": job}))]


ERRORS_COUNTED = 1_000
"""Attempts of a class of errors are counted up to this: a flood must not hide rare errors."""


class ErrorRecord(Record, frozen=True):
    """Attempts that failed in the same way, but for what differs from one job to the next."""

    job_type: str
    """Name of the job type."""
    error_type: str | None
    """Class name of the error; None: none is recorded."""
    response_code: int | None
    """HTTP or SMTP status code of the error; None: it has none."""
    message: str | None
    """The first line of its text, in which "…" stands for an address or a word with a digit; a
    search for it finds the jobs. None: it has no text."""
    attempts: int
    """How many attempts failed so; counted up to 1,000 for a type, class and response code."""
    jobs: int
    """How many different jobs failed so."""
    dead: int
    """How many of these jobs are dead, and wait for a person."""
    first_at: datetime
    """When it was met first in the period, an aware datetime."""
    last_at: datetime
    """When it was met last, an aware datetime."""
    last_job: int
    """Id of the job that met it last."""
    releases: dict[str, int]
    """The attempts by the release that ran them, most first."""


def errors(
    since: datetime | timedelta | None, job_type: str | None, limit: int
) -> Operation[list[ErrorRecord]]:
    """Read the errors of a period, the last met first: of its newest 30,000 failed attempts, and at
    most ERRORS_COUNTED of a class."""
    params = {"job_type": job_type, "counted": ERRORS_COUNTED, "limit": limit}
    rows = yield Query("errors", params | instant_or_ago("since", since))
    return [ErrorRecord(*(*row[:-1], _RELEASES.decode(row[-1]))) for row in rows]


_RELEASES = msgspec.json.Decoder(dict[str, int])


def chain(job: int) -> Operation[list[int]]:
    """Read the ids of the jobs that are the same work, in order: the original and its requeues."""
    return [row[0] for row in (yield Query("job_chain", {"job": job}))]


def count_live_members(batch: int, limit: int) -> Operation[list[Row]]:
    """Read how many jobs of a batch that are not over have which status, `limit` at most."""
    return (yield Query("batch_live", {"batch": batch, "limit": limit}))


def oldest_due() -> Operation[tuple[datetime, float] | None]:
    """Read when the oldest due job was due, and its seconds of waiting; None: nothing is due."""
    at, waiting_s = (yield Query("oldest_due_read"))[0]
    return None if at is None else (at, waiting_s)


def read_clock() -> Operation[datetime]:
    return (yield Query("clock"))[0][0]  # type: ignore[no-any-return]


class QueueDepth(Record, frozen=True):
    """How many jobs of a priority are ready in a queue."""

    queue: str
    """Name of the queue."""
    priority: int
    """Priority of these jobs, -100 … 100."""
    due: int
    """How many are due now. A count that reaches 10,000 means at least so many."""
    later: int
    """How many are due later. A count that reaches 10,000 means at least so many."""
    oldest_run_at: datetime
    """The earliest `run_at`, of jobs to come too."""
    oldest_due: datetime | None
    """The earliest `run_at` of due jobs; None: no job is due."""
    oldest_due_s: float | None
    """Seconds since `oldest_due`; None: no job is due."""


class AlertRecord(Record, frozen=True):
    """An alert that stands, or ended within a day."""

    rule: str
    """Name of the alert rule."""
    subject: str
    """What it is about: an error type, queue, job type or schedule; empty: it has one subject."""
    state: str
    """What was last reported: it `fires`, `repeats` or is `over`."""
    since: datetime
    """When it was first found, an aware datetime."""
    last_notified_at: datetime | None
    """When it was last reported, an aware datetime."""
    notifications: int
    """How many were sent about this subject."""
    over_at: datetime | None
    """When it ended, an aware datetime; None: it stands."""
    value: float
    """What the rule measured: jobs, failures a minute, or seconds, by its kind."""
    message: str
    """What was found, in a sentence."""
    severity: str
    """`warning` or `critical`, as last reported."""


def read_top(limits: dict[str, Any]) -> Operation[dict[str, Any]]:
    """Read what a frame of `rota top` shows, with at most so many of each kind."""
    [[text]] = yield Query("top", limits)
    facts: dict[str, Any] = msgspec.json.decode(text)
    return facts


def table(
    name: str, params: dict[str, Any] | None = None, *, columns: Sequence[str]
) -> Operation[list[dict[str, Any]]]:
    rows = yield Query(name, params or {})
    return [dict(zip(columns, row, strict=True)) for row in rows]
