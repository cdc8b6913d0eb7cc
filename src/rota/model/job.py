"""What a job is, its statuses, and what people can do to it. Pure: no I/O, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from rota.errors import refuse_attribute
from rota.model.record import ReadJson, Record, describe
from rota.model.scrub import mask_fields


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


StatusName = (
    Status | Literal["queued", "waiting", "running", "failed", "dead", "succeeded", "cancelled"]
)
"""A status as a filter takes it; of another text, `rota.Status(text)` makes one."""

OVER = frozenset({Status.SUCCEEDED, Status.CANCELLED})
"""The statuses of rows of `job_history`; all others are statuses of `job`."""


class Action(StrEnum):
    """What people do to jobs: verbs of TRANSITIONS and of the table `action`. The retry of a dead
    job is logged as a `requeue`."""

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
    """Id of the job that was inserted, or of the job that has the key."""
    created: bool
    """Whether this call inserted the job."""
    status: str
    """The status of that job, such as `queued`."""
    change: str | None = None
    """What was done to the first job, by `on_duplicate`: `replaced` or `postponed`; None: nothing,
    or this job was created."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what other libraries' names for a result are called here."""
            refuse_attribute("the result of an enqueue", name, _CALLED_HERE)


_CALLED_HERE = {
    **dict.fromkeys(("get", "result", "wait"), "app.join(enqueued.id).result"),
    **dict.fromkeys(("ready", "state", "refresh"), "app.get(enqueued.id).status"),
    **dict.fromkeys(("revoke", "forget"), "app.cancel(enqueued.id)"),
}


class Job(Record, frozen=True, gc=False):
    """A job as it was when it was read: one row of the view `rota.jobs`.

    Names are the column names; instants are aware datetimes. A claim makes a Job by position, of
    its columns: the first fields, down to `started_at`, keep their order. In a handler the other
    fields have their defaults.
    """

    __json_names__: ClassVar[dict[str, str | None]] = {"hidden_fields": None}

    id: int
    """Identifies the job, live and in history."""
    origin_id: int
    """Id of the first job of the same work: its own, unless it is the requeue of a dead job."""
    queue: str
    """Name of the queue in which it waits."""
    job_type: str
    """Name of the type whose handler runs it."""
    payload_json: str
    """The arguments of the handler, as JSON text."""
    payload_version: int | None
    """Version of the payload; None: the producer gave none."""
    priority: int
    """-100 … 100: within a queue, jobs with a higher priority start first."""
    run_at: datetime
    """When it is or was due."""
    expires_at: datetime | None
    """A job that has not started by then expires; None: it does not expire."""
    attempts: int
    """How many attempts count, the running one included."""
    max_attempts: int | None
    """With so many attempts that count, a failed job is dead; None: as many as the type says."""
    claims: int
    """Grows with every claim and every way out of `running`: it tells one claim from another."""
    idempotency_key: str | None
    """No other job of its type may have this key; None: it has none."""
    meta_json: str | None
    """What the producer attached beside the arguments, as JSON text; None: nothing."""
    created_at: datetime
    """When it was inserted."""
    schedule: str | None = None
    """The schedule of which it is a run; None: it is no run."""
    scheduled_for: datetime | None = None
    """The scheduled time; None: a person triggered it."""
    losses: int = 0
    """How often a worker was lost with the job after it may have begun."""
    timeout_s: float | None = None
    """Seconds that an attempt may run; None: as long as the type says."""
    group_key: str | None = None
    """Its ordered group: jobs with one key run in the order of becoming due. None: it has none."""
    batch: int | None = None
    """The id of the batch of which it is a member; None: it is in no batch."""
    locked_by: str | None = None
    """Name of the worker that holds it or has finished it; None: no worker."""
    started_at: datetime | None = None
    """When the last handler began; while it runs, when it was claimed; None: no handler began."""
    status: Status = Status.RUNNING
    """Its status when it was read."""
    locked_until: datetime | None = None
    """When its lease ends; None: no worker holds it."""
    cancel_requested_at: datetime | None = None
    """When it was to be cancelled while it ran; None: it was not."""
    cancel_reason: str | None = None
    """Why it was cancelled, or is to be; None: it is not, or no reason was given."""
    progress_json: str | None = None
    """What the handler last reported, as JSON text; None: it reported nothing."""
    last_error: str | None = None
    """Message of the last failure, or why it was cancelled; None: neither."""
    error_type: str | None = None
    """Class name of the last failure; None: none is recorded."""
    response_code: int | None = None
    """HTTP or SMTP status code of the last failure; None: it had none."""
    verdict: str | None = None
    """`transient` or `fatal`, of the last failure; None: none is recorded."""
    verdict_rule: str | None = None
    """The rule that gave the verdict; None: there is no verdict."""
    group_capacity: int = 1
    """How many jobs of its group may run at once when it begins."""
    waits_for: str | None = None
    """What it was delayed for, or waits for outside of the jobs that can be claimed: `group KEY`;
    `type NAME` or `queue NAME` (a concurrency limit); `limit NAME` or `breaker NAME`, with a key;
    `job ID`, one of the jobs that it waits for. None: nothing of this kind."""
    waits_since: datetime | None = None
    """Since when it waits for `waits_for`; None: it does not wait."""
    updated_at: datetime | None = None
    """When an attempt's outcome was last recorded, or else when it was inserted."""
    failed_at: datetime | None = None
    """When the last failure was recorded; None: no failure."""
    finished_at: datetime | None = None
    """When it succeeded, was cancelled or was archived; None: it is live."""
    result_json: str | None = None
    """What the handler returned, as JSON text; None: nothing, or it has not succeeded."""
    release: str | None = None
    """Release of the code that finished it; None: it is live, or no worker finished it."""
    resolution_json: str | None = None
    """Who archived a dead job, when and why, as JSON text; None: it is not archived."""
    hidden_fields: list[str] | None = None
    """The fields of its payload that are not shown: its type's secret and personal fields."""
    wait: WaitReason | None = None
    """What holds it back besides its `run_at`; None: nothing does, or nobody looked: a timeline
    does, and a search with `waiting`."""

    def __repr__(self) -> str:  # what it shows is in logs and notebooks: nothing of the payload
        return f"<job {self.id} {self.job_type} {self.status}>"

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as stored, not converted to the handler's types: secrets are sealed."""
        return msgspec.json.decode(self.payload_json, type=dict[str, Any])

    @property
    def shown_payload(self) -> str:
        """The payload as JSON text, as it may be shown: `***` stands for secret and personal
        values."""
        return mask_fields(self.payload_json, self.hidden_fields)

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
        try:
            return msgspec.json.decode(self.progress_json or "null", type=Progress | None)
        except msgspec.ValidationError:  # not written by Rota
            return None

    def facts(self, read_json: ReadJson) -> dict[str, Any]:
        """Return its values by their names in JSON. Called by the command line."""
        facts = super().facts(read_json) | {"payload": read_json(self.shown_payload)}
        # Rota writes these two, and they contain an instant.
        for name, text in (("progress", self.progress_json), ("resolution", self.resolution_json)):
            if text is not None:
                facts[name] = _read_instant(msgspec.json.decode(text))
        return facts

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        schema = super().json_schema()
        schema["properties"]["payload"] = {"type": "object"}
        schema["properties"]["progress"] = describe(Progress | None)
        return schema

    @property
    def resolution(self) -> Any:
        """For an archived dead job: who archived it, when and why; None otherwise."""
        return None if self.resolution_json is None else msgspec.json.decode(self.resolution_json)


class WaitReason(Record, frozen=True):
    """What holds a job back, and since when."""

    since: datetime
    """Since when, an aware datetime."""
    what: str
    """`waits`; or `halts`: a dead job that halts its ordered group."""
    text: str
    """For what it waits, and what else a person may want to know, on one line."""


class Progress(Record, frozen=True):
    """The progress that a handler reported."""

    done: float
    """How much is done, in the handler's own unit."""
    total: float | None
    """How much there is to do; None: unknown."""
    note: str | None
    """The current step; None: not said."""
    at: datetime
    """When the worker stored the report."""

    @property
    def fraction(self) -> float | None:
        """How much is done, 0 … 1; None: the total is unknown. With a total of 0, it is 1."""
        if self.total is None:
            return None
        return 1.0 if self.done >= self.total else self.done / self.total


def _read_instant(value: Any) -> Any:
    try:
        return value | {"at": datetime.fromisoformat(value["at"]).astimezone(UTC)}
    except (TypeError, KeyError, ValueError):  # not written by Rota
        return value
