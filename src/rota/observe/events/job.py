"""Events of a job's attempts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Self

from rota.model.job import Job
from rota.model.outcome import Failure
from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """A step of one attempt of a job."""

    job: int
    """Id of the job."""
    job_type: str
    """Name of its type."""
    attempt: int
    """Number of the attempt, from 1."""
    claim: int
    """The value of the job's `claims` under which the attempt runs."""
    worker: str
    """Name of the worker that holds or held the job."""
    queue: str | None = None
    """Its queue; None: the event is about a job of another worker's."""
    schedule: str | None = None
    """The schedule of which it is a run; None: it is no run, or of another worker's."""

    @classmethod
    def of(cls, job: Job, worker: str, **own: Any) -> Self:
        """Make the event of a job as that worker claimed it.

        Args:
            own: the fields that only this event has.
        """
        return cls(
            job=job.id,
            job_type=job.job_type,
            attempt=job.attempts,
            claim=job.claims,
            worker=worker,
            queue=job.queue,
            schedule=job.schedule,
            **own,
        )

    def text(self) -> str:
        return f"job {self.job} {self.job_type} attempt {self.attempt}: {self._describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaimed(JobEvent):
    """This worker holds the job; it starts as soon as a slot is free."""

    level = logging.DEBUG
    line = "claimed by {worker}"
    waited_s: float = 0.0
    """Seconds that it had been due, by the database's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """The job succeeded, and that is committed."""

    line = "succeeded in {ran_s:.3f} s"
    ran_s: float
    """Seconds that the handler ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """The attempt failed and the job will be retried, and that is committed."""

    level = logging.WARNING
    line = (
        "failed, retry in {retry_in_s:.1f} s: "
        "{failure.error_type}: {failure.message} ({failure.verdict_rule})"
    )
    failure: Failure
    """What is stored of the error."""
    retry_in_s: float
    """Seconds until the next attempt."""
    ran_s: float | None = None
    """Seconds that the handler ran; None: it did not begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDead(JobEvent):
    """The job is dead, and that is committed: it waits for you."""

    level = logging.ERROR
    line = "dead: {failure.error_type}: {failure.message} ({failure.verdict_rule})"
    failure: Failure
    """What is stored of the error."""
    ran_s: float | None = None
    """Seconds that the handler ran; None: it did not begin, or its worker is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(JobEvent):
    """The handler cancelled the job, or a person did while a worker held it, or it was dropped at
    its expiry, and that is committed."""

    reason: str | None
    """Why; None: no reason was given."""

    def _describe(self) -> str:
        return f"cancelled: {self.reason or 'no reason given'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(JobEvent):
    """The handler delayed the job without charging the attempt, and that is committed."""

    run_in_s: float
    """Seconds until the job runs again."""
    reason: str | None
    """Why; None: the handler gave no reason."""

    def _describe(self) -> str:
        return f"snoozed for {self.run_in_s:.1f} s: {self.reason or 'no reason given'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaiting(JobEvent):
    """The handler lets the job wait until other jobs have ended, and that is committed."""

    awaited: tuple[int, ...]
    """Ids of the jobs that it waits for."""

    def _describe(self) -> str:
        if len(self.awaited) == 1:
            return f"waits for job {self.awaited[0]}"
        return f"waits for {len(self.awaited)} jobs, the last of them {self.awaited[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandedBack(JobEvent):
    """The job returned to the queue without using an attempt, and that is committed: its worker
    goes down, its payload does not fit this release, a rate limit or a breaker did not let it
    begin, or its handler raised `RateLimited`."""

    why: str
    """Why, in words."""
    run_in_s: float | None
    """Seconds until it may be claimed again; None: its `run_at` stays, or the database chose it."""
    waits_for: str | None
    """The rate limit or breaker, as in `job.waits_for`; None: there is none."""

    @property
    def level_now(self) -> int:
        return self.level if self.run_in_s is None else logging.DEBUG  # thousands at once

    def _describe(self) -> str:
        for_s = "" if self.run_in_s is None else f" for {self.run_in_s:.1f} s"
        return f"returned to the queue{for_s}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadUnread(JobEvent):
    """This release cannot read the payloads of a type: such jobs wait for another release.

    Emitted at the first of them, once for each process and type.
    """

    level = logging.WARNING
    line = (
        "its payload does not fit this release; such jobs of its type wait for another release, "
        "and are dead if none has read them within about an hour: {reason}"
    )
    reason: str
    """What does not fit: the argument and why, without its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReaped(JobEvent):
    """Another worker's lease expired; its attempt counts as lost. `worker` is the one that lost
    it."""

    level = logging.WARNING
    line = "lost by {worker}, whose lease expired; now {status}"
    status: str
    """The job's status now: `queued`, `failed`, `dead` or `cancelled`."""

    @property
    def level_now(self) -> int:
        return logging.ERROR if self.status == "dead" else self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(JobEvent):
    """This worker no longer holds the job; the outcome of its handler is discarded."""

    level = logging.ERROR
    line = "lease lost by {worker}; its outcome is discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRefused(JobEvent):
    """The database refuses this attempt's outcome, while it accepts others.

    Emitted once per attempt. The worker retries for `for_s` seconds, then leaves the job to its
    lease: another worker recovers it. If not the job is at fault, but a right, an object or a lock,
    the worker retries for as long as it lives.
    """

    level = logging.ERROR
    reason: str
    """What the database said."""
    for_s: float | None
    """Seconds for which the worker tries again; None: as long as it lives."""

    def _describe(self) -> str:
        until = "for as long as the worker lives"
        if self.for_s is not None:
            until = f"for {self.for_s:.0f} s, then the job is left to its lease"
        return f"the database refuses its outcome; retrying {until}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAbandoned(JobEvent):
    """A handler keeps running past its timeout and does not stop.

    Its slot is abandoned, and its outcome is discarded. When `abandoned` reaches `slots`, the
    worker ends with WorkerExhausted.
    """

    level = logging.ERROR
    line = "its handler did not stop at its timeout; its slot is abandoned ({abandoned} of {slots})"
    abandoned: int
    """How many handlers of the worker run on like this now."""
    slots: int
    """How many slots the worker has."""
