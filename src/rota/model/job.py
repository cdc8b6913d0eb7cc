"""What a job is, its statuses, and what people can do to it. Pure: no I/O, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from rota.model.record import ReadJson, Record, describe


class Status(StrEnum):
    """The status of a job, stored as these words."""

    QUEUED = "queued"
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"
    DEAD = "dead"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the job is in history: nothing more happens to it."""
        return self in OVER

    @property
    def is_settled(self) -> bool:
        """Whether no machine will touch the job again: it is over, or dead and needs a person."""
        return self in OVER or self is Status.DEAD


OVER = frozenset({Status.SUCCEEDED, Status.CANCELLED})
"""The statuses of rows of `job_history`; the others are those of `job`."""


class Action(StrEnum):
    """What people do to jobs: verbs of TRANSITIONS and of the table `action`.

    The retry of a dead job is logged as a `requeue`.
    """

    RETRY = "retry"
    RESCHEDULE = "reschedule"
    CANCEL = "cancel"
    DISCARD = "discard"
    REQUEUE = "requeue"
    ARCHIVE = "archive"
    RUN_AGAIN = "run_again"


class Enqueued(Record, frozen=True):
    """The result of an enqueue. If the key was already taken, `created` is False, and id and status
    are those of the first job."""

    id: int
    created: bool
    status: str
    change: str | None = None
    """What was done to the first job, by `on_duplicate`: `replaced` or `postponed`; None: nothing,
    or this job was created."""


class Job(Record, frozen=True, gc=False):
    """A job as it was when it was read: one row of the view `rota.jobs`.

    Names are the column names; instants are aware datetimes. A claim makes a Job by position, of
    its columns: the first fields, down to `started_at`, stand in their order.
    """

    id: int
    origin_id: int
    queue: str
    job_type: str
    payload_json: str
    payload_version: int | None
    priority: int
    run_at: datetime
    expires_at: datetime | None
    attempts: int
    max_attempts: int | None
    claims: int
    idempotency_key: str | None
    meta_json: str | None
    created_at: datetime
    schedule: str | None = None
    """The schedule of which it is a run; None: it is no run."""
    scheduled_for: datetime | None = None
    """The schedule's tick; None: a person triggered it."""
    losses: int = 0
    """How often a worker was lost with the job after it may have begun."""
    timeout_s: float | None = None
    """Seconds that an attempt may run; None: as long as the type says."""
    group_key: str | None = None
    """Its lane: jobs with one group_key run in the order of becoming due. None: it has none."""
    batch: int | None = None
    """The id of the batch of which it is a member; None: of none."""
    locked_by: str | None = None
    started_at: datetime | None = None
    status: Status = Status.RUNNING
    locked_until: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    progress_json: str | None = None
    last_error: str | None = None
    error_type: str | None = None
    response_code: int | None = None
    verdict: str | None = None
    verdict_rule: str | None = None
    lane_capacity: int = 1
    """How many jobs of its lane may run at once when it begins."""
    waits_for: str | None = None
    """What it was handed back for, or waits for outside of the jobs that can be claimed: `type
    NAME` or `queue NAME` (a cap), `limit NAME` or `breaker NAME`, with a key; `job ID`, one of the
    jobs that it awaits. None: for none of these."""
    waits_since: datetime | None = None
    """Since when it waits for that."""
    updated_at: datetime | None = None
    failed_at: datetime | None = None
    finished_at: datetime | None = None
    result_json: str | None = None
    release: str | None = None
    resolution_json: str | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as stored, not converted to the handler's types."""
        return msgspec.json.decode(self.payload_json, type=dict[str, Any])

    @property
    def timeout(self) -> timedelta | None:
        """The longest an attempt may run; None: as long as the type says."""
        return None if self.timeout_s is None else timedelta(seconds=self.timeout_s)

    @property
    def meta(self) -> Any:
        """What the producer attached beside the arguments; None: nothing."""
        return None if self.meta_json is None else msgspec.json.decode(self.meta_json)

    @property
    def result(self) -> Any:
        """What the handler returned, in its JSON form; None: nothing, or the job is not over."""
        return None if self.result_json is None else msgspec.json.decode(self.result_json)

    @property
    def progress(self) -> Progress | None:
        """The progress that the handler last reported; None: it reported none."""
        return (
            None
            if self.progress_json is None
            else msgspec.json.decode(self.progress_json, type=Progress)
        )

    def facts(self, read_json: ReadJson) -> dict[str, Any]:
        """Return its values by their names in JSON. Called by the command line."""
        facts = super().facts(read_json)
        # Rota writes these two, and they contain an instant.
        for name, text in (("progress", self.progress_json), ("resolution", self.resolution_json)):
            if text is not None:
                facts[name] = _read_instant(msgspec.json.decode(text))
        return facts

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of `to_dict`."""
        schema = super().json_schema()
        schema["properties"]["payload"] = {"type": "object"}
        schema["properties"]["progress"] = describe(Progress | None)
        return schema

    @property
    def resolution(self) -> Any:
        """For an archived dead job: who archived it, when and why; None otherwise."""
        return None if self.resolution_json is None else msgspec.json.decode(self.resolution_json)


class Progress(Record, frozen=True):
    """The progress that a handler reported."""

    done: float
    total: float | None
    """How much there is to do; None: unknown."""
    note: str | None
    """The current step; None: not said."""
    at: datetime
    """When the worker stored the report."""

    @property
    def fraction(self) -> float | None:
        """How much is done, 0 … 1; None: the total is unknown. Of nothing, all is done."""
        if self.total is None:
            return None
        return 1.0 if self.done >= self.total else self.done / self.total


def _read_instant(value: Any) -> Any:
    try:
        return value | {"at": datetime.fromisoformat(value["at"]).astimezone(UTC)}
    except (TypeError, KeyError, ValueError):  # not written by Rota
        return value
