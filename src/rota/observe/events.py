"""Every event: something that happened in this process, with its line in the log. A `Bus` hands
events to the log and to an application's listeners."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from rota.model.failure import escape, one_line
from rota.model.job import Job
from rota.model.outcome import Failure
from rota.model.units import list_some, plural, words
from rota.model.wait import IS_IMPORTED

SHOWN_MAX = 20
"""Most ids in a line of the log."""

logger = logging.getLogger("rota")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in this process."""

    level: ClassVar[int] = logging.INFO
    """The level of its line in the log."""
    line: ClassVar[str]
    """The log line, with fields in braces. If its words depend on values, see `_describe`."""

    @property
    def level_now(self) -> int:
        """The level of this event's line; overridden where the level depends on the values."""
        return self.level

    def _describe(self) -> str:
        """Say what happened, without the subject."""
        return self.line.format(**msgspec.structs.asdict(self))

    def text(self) -> str:
        """Return the line in the log."""
        return self._describe()


E = TypeVar("E", bound=Event)


class Bus:
    """Hands each event to the log and to the listeners of its class or a class above it. An error
    in a listener is logged and stays there."""

    def __init__(self) -> None:
        self._listeners: dict[type[Event], list[Callable[[Any], object]]] = defaultdict(list)

    def on(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call `listener(event)` for each event of that class, in its thread and loop. It must
        return quickly."""
        self._listeners[kind].append(listener)

    def wants(self, kind: type[Event]) -> bool:
        """Return whether the log or a listener takes such an event; who emits many asks first."""
        return logger.isEnabledFor(kind.level) or any(
            base in self._listeners for base in kind.__mro__
        )

    def emit(self, event: Event) -> None:
        """Log the event and call its listeners."""
        level = event.level_now
        if logger.isEnabledFor(level):  # a text costs more than the event
            logger.log(level, "%s", escape(event.text()), extra={"rota_event": event})
        for base in type(event).__mro__:
            for listener in self._listeners.get(base, ()):
                try:
                    listener(event)
                except (Exception, SystemExit):
                    logger.exception(
                        "a listener for %s failed; the job is not affected", type(event).__name__
                    )


# Jobs


class JobEvent(Event, frozen=True, kw_only=True):
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
    """Its queue; None: the event is about another worker's job."""
    schedule: str | None = None
    """The schedule of which it is a run; None: it is no run, or another worker's job."""

    @classmethod
    def of(cls, job: Job, worker: str, **own: Any) -> Self:
        """Make the event of a job as that worker claimed it; `own` are the fields of this event."""
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


class JobClaimed(JobEvent, frozen=True, kw_only=True):
    """This worker holds the job; it starts as soon as a slot is free."""

    level = logging.DEBUG
    line = "claimed by {worker}"
    waited_s: float = 0.0
    """Seconds that it had been due, by the database's clock."""


class JobSucceeded(JobEvent, frozen=True, kw_only=True):
    """The job succeeded, and that is committed."""

    line = "succeeded in {ran_s:.3f} s"
    ran_s: float
    """Seconds that the handler ran."""


class JobFailed(JobEvent, frozen=True, kw_only=True):
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


class JobDead(JobEvent, frozen=True, kw_only=True):
    """The job is dead, and that is committed: it waits for you."""

    level = logging.ERROR
    line = "dead: {failure.error_type}: {failure.message} ({failure.verdict_rule})"
    failure: Failure
    """What is stored of the error."""
    ran_s: float | None = None
    """Seconds that the handler ran; None: it did not begin, or its worker is lost."""


class JobCancelled(JobEvent, frozen=True, kw_only=True):
    """The handler cancelled the job, or a person did while a worker held it, or it was dropped at
    its expiry, and that is committed."""

    reason: str | None
    """Why; None: no reason was given."""

    def _describe(self) -> str:
        return f"cancelled: {self.reason or 'no reason given'}"


class JobSnoozed(JobEvent, frozen=True, kw_only=True):
    """The handler delayed the job without charging the attempt, and that is committed."""

    run_in_s: float
    """Seconds until the job runs again."""
    reason: str | None
    """Why; None: the handler gave no reason."""

    def _describe(self) -> str:
        return f"snoozed for {self.run_in_s:.1f} s: {self.reason or 'no reason given'}"


class JobWaiting(JobEvent, frozen=True, kw_only=True):
    """The handler lets the job wait until other jobs have ended, and that is committed."""

    awaited: tuple[int, ...]
    """Ids of the jobs that it waits for."""

    def _describe(self) -> str:
        if len(self.awaited) == 1:
            return f"waits for job {self.awaited[0]}"
        return f"waits for {len(self.awaited)} jobs, the last of them {self.awaited[-1]}"


class JobHandedBack(JobEvent, frozen=True, kw_only=True):
    """The job returned to the queue without using an attempt, and that is committed: its worker
    goes down, its payload does not fit this release, its breaker opened before it began, it came
    too late for the start that its rate limit gave it, or its handler raised `RateLimited`."""

    why: str
    """Why, in words."""
    run_in_s: float | None
    """Seconds until it may be claimed again; None: its `run_at` stays, or the database chose it."""
    waits_for: str | None
    """The rate limit, as in `job.waits_for`; None: there is none."""
    was_stopped: bool = False
    """Whether its handler had begun, and the worker stopped it."""

    @property
    def level_now(self) -> int:
        return self.level if self.was_stopped else logging.DEBUG  # thousands at once

    def _describe(self) -> str:
        for_s = "" if self.run_in_s is None else f" for {self.run_in_s:.1f} s"
        return f"returned to the queue{for_s}: {self.why}"


class PayloadUnread(JobEvent, frozen=True, kw_only=True):
    """This release cannot read the payloads of a type: such jobs wait for another release. Emitted
    at the first such job, once for each process and type."""

    level = logging.WARNING
    line = (
        "its payload does not fit this release; such jobs of its type wait for another release, "
        "and are dead if none has read them within about an hour: {reason}"
    )
    reason: str
    """What does not fit: the argument and why, without its value."""


class JobReaped(JobEvent, frozen=True, kw_only=True):
    """Another worker's lease expired; its attempt counts as lost. `worker` is that worker."""

    level = logging.WARNING
    line = "lost by {worker}, whose lease expired; now {status}"
    status: str
    """The job's status now: `queued`, `failed`, `dead` or `cancelled`."""

    @property
    def level_now(self) -> int:
        return logging.ERROR if self.status == "dead" else self.level


class LeaseLost(JobEvent, frozen=True, kw_only=True):
    """This worker no longer holds the job; the outcome of its handler is discarded."""

    level = logging.ERROR
    line = "lease lost by {worker}; its outcome is discarded"


class OutcomeRefused(JobEvent, frozen=True, kw_only=True):
    """The database refuses this attempt's outcome, while it accepts others.

    Emitted once per attempt. The worker retries for `for_s` seconds, then leaves the job to its
    lease: another worker recovers it. If a right, an object or a lock is at fault, and not the job,
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


class HandlerAbandoned(JobEvent, frozen=True, kw_only=True):
    """A handler keeps running past its timeout and does not stop. Its slot is abandoned, and its
    outcome is discarded. When `abandoned` reaches `slots`, the worker ends with WorkerExhausted."""

    level = logging.ERROR
    line = "its handler did not stop at its timeout; its slot is abandoned ({abandoned} of {slots})"
    abandoned: int
    """How many handlers of the worker run on like this now."""
    slots: int
    """How many slots the worker has."""


# Workers


class WorkerStarted(Event, frozen=True, kw_only=True):
    """A worker is about to claim."""

    line = "worker {worker} started, release {release}, queues {queues}; {urgent_slots}"
    worker: str
    """Name of the worker."""
    release: str
    """Release of its code."""
    queues: str
    """Its queues with their slots, in words."""
    urgent_slots: str
    """How many of the slots are for jobs with a priority above 0."""


class TypeUnknown(Event, frozen=True, kw_only=True):
    """Jobs are due in the queues of this worker, and no live worker knows their type. Emitted once
    for each type, and again after the type was known or its jobs were gone."""

    level = logging.WARNING
    job_type: str
    """Name of the type."""
    jobs: int
    """How many of the first due jobs are of the type, at least one."""
    app: str
    """The App of the worker, in words."""

    def _describe(self) -> str:
        of_type = f"of type {one_line(self.job_type)}"
        some = plural(self.jobs, f"job {of_type} is", f"jobs {of_type} are")
        return f"{some} due in its queues, and {self.app} does not declare it: {IS_IMPORTED}"


class WorkerStopped(Event, frozen=True, kw_only=True):
    """A worker has ended. An ERROR if it could not record all that its jobs had done."""

    worker: str
    """Name of the worker."""
    unwritten: tuple[int, ...] = ()
    """Ids of jobs whose outcomes are lost with it, because the database did not take them: they run
    again when their leases expire."""

    @property
    def level_now(self) -> int:
        return logging.ERROR if self.unwritten else self.level

    def _describe(self) -> str:
        if not self.unwritten:
            return f"worker {self.worker} stopped"
        jobs = plural(len(self.unwritten), "job")
        shown = list_some(map(str, self.unwritten), SHOWN_MAX, ", ")
        return (
            f"worker {self.worker} stopped, and the database took no outcome of {jobs} ({shown}): "
            "they run again when their leases expire"
        )


class LoopBlocked(Event, frozen=True, kw_only=True):
    """The worker's event loop is blocked: only the renewal of its leases runs. Emitted once after a
    second, and again when the loop is free (`over`)."""

    level = logging.WARNING
    job: int | None
    """Id of the job whose handler runs on the loop; None: no handler runs."""
    job_type: str | None
    """Name of its type; None: no handler runs."""
    blocked_s: float
    """Seconds that the loop has been blocked."""
    place: str
    """The line that blocks it, as in "/srv/shop/mail.py:12 in send"."""
    over: bool
    """Whether the loop is free again."""

    def _describe(self) -> str:
        who = "code outside handlers" if self.job is None else f"job {self.job} {self.job_type}"
        verb = "blocked" if self.over else "has been blocking"
        return f"{who} {verb} the event loop for {self.blocked_s:.1f} s at {self.place}"


class DatabaseLost(Event, frozen=True, kw_only=True):
    """A part of the worker could not reach the database and tries again."""

    level = logging.WARNING
    service: str
    """The part of the worker, such as `claimer`."""
    reason: str
    """What went wrong, in words."""
    retry_in_s: float
    """Seconds until the next try."""
    refused: bool = False
    """Whether the database answered, and refused what this part wants to do."""

    def _describe(self) -> str:
        what = "failed" if self.refused else "database unavailable"
        return f"{self.service}: {what}, next try in {self.retry_in_s:.1f} s: {self.reason}"


class DatabaseCopied(Event, frozen=True, kw_only=True):
    """This is a restored copy: the worker claims nothing and does no maintenance until you release
    the copy. Emitted once a minute."""

    level = logging.ERROR
    line = "this is a restored copy ({reason}): nothing runs until `rota queues resume --copy`"
    reason: str
    """How the database differs from what it recorded of itself."""


# Schedules


class ScheduleEvent(Event, frozen=True, kw_only=True):
    """An event of one schedule."""

    schedule: str
    """Name of the schedule."""

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: {self._describe()}"


class RunEnqueued(ScheduleEvent, frozen=True, kw_only=True):
    """A scheduled time became a job."""

    line = "job {job} enqueued for {scheduled_for:%Y-%m-%d %H:%M}Z"
    job: int
    """Id of the job."""
    scheduled_for: datetime
    """The scheduled time, an aware datetime."""


class RunSkipped(ScheduleEvent, frozen=True, kw_only=True):
    """A scheduled time was skipped, because the earlier run `live` is not over."""

    level = logging.WARNING
    line = (
        "scheduled time {scheduled_for:%Y-%m-%d %H:%M}Z skipped, because job {live} is not over "
        "(recorded as job {job})"
    )
    job: int
    """Id of the job that records it in history."""
    scheduled_for: datetime
    """The scheduled time, an aware datetime."""
    live: int
    """Id of the job of the earlier run."""


class RunsMissed(ScheduleEvent, frozen=True, kw_only=True):
    """Scheduled times came while no worker was up, and are skipped by the schedule's `catch_up`."""

    level = logging.WARNING
    runs: int
    """How many scheduled times were missed, counted up to 1,000."""
    is_more: bool
    """Whether there were more than were counted."""
    next_run_at: datetime
    """The next scheduled time, an aware datetime."""

    def _describe(self) -> str:
        more = "more than " if self.is_more else ""
        following = f"{self.next_run_at:%Y-%m-%d %H:%M}Z"
        return f"skipped {more}{plural(self.runs, 'missed run')}; next {following}"


class ScheduleRefused(ScheduleEvent, frozen=True, kw_only=True):
    """A schedule could not be planned, or its job not enqueued."""

    level = logging.ERROR
    reason: str
    """What is wrong, in words."""
    paused: bool
    """Whether the schedule is at fault, and paused; otherwise a later pass, or a worker that can
    read the schedule, tries again."""

    def _describe(self) -> str:
        return f"{'paused' if self.paused else 'delayed'}: {one_line(self.reason)}"


class ScheduleDisabled(ScheduleEvent, frozen=True, kw_only=True):
    """The newest release has not declared the schedule for an hour; it no longer runs."""

    level = logging.WARNING
    line = "disabled, because the newest release does not declare it"


# Breakers


class BreakerOpened(Event, frozen=True, kw_only=True):
    """A breaker has opened, or stays open because its trial failed: its jobs wait."""

    level = logging.WARNING
    breaker: str
    """Name of the breaker."""
    key: str | None
    """The key whose jobs wait; None: the breaker has no keys."""
    for_s: float
    """Seconds until one job may try."""
    failures: int | None
    """After how many failures; None: the trial failed."""
    reason: str
    """The last failure."""

    def _describe(self) -> str:
        name = _name_breaker(self.breaker, self.key)
        why = (
            "its trial failed"
            if self.failures is None
            else f"after {plural(self.failures, 'failure')}"
        )
        return f"{name} is open for {words(self.for_s)}, {why}: {self.reason}"


class BreakerClosed(Event, frozen=True, kw_only=True):
    """The trial of a breaker has succeeded: the jobs that waited for it start."""

    breaker: str
    """Name of the breaker."""
    key: str | None
    """The key whose jobs waited; None: the breaker has no keys."""

    def _describe(self) -> str:
        return f"{_name_breaker(self.breaker, self.key)} is closed: its trial succeeded"


def _name_breaker(breaker: str, key: str | None) -> str:
    return f"breaker {breaker}" if key is None else f"breaker {breaker} {key}"


# Alerts


class AlertFired(Event, frozen=True, kw_only=True):
    """An alert rule found something that a person should know. Of all processes, one emits it."""

    level = logging.ERROR
    rule: str
    """Name of the alert rule."""
    subject: str
    """An error type, a queue, a job type or a schedule; empty: the rule has a single subject."""
    severity: str
    """`warning` or `critical`."""
    message: str
    """What was found, in a sentence."""
    value: float
    """What the rule measured: jobs, failures a minute, or seconds, by its kind."""
    since: datetime
    """When it was first found, an aware datetime."""
    repeated: bool
    """Whether it was reported before: it still stands after `repeat_after`, or became critical."""

    @property
    def level_now(self) -> int:
        return logging.WARNING if self.severity == "warning" else self.level

    def _describe(self) -> str:
        since = f" (since {self.since.isoformat(timespec='seconds')})" if self.repeated else ""
        return f"alert {self.rule!r}: {self.message}{since}"


class AlertOver(Event, frozen=True, kw_only=True):
    """Two evaluations in a row did not find the subject of an alert."""

    rule: str
    """Name of the alert rule."""
    subject: str
    """As in `AlertFired`."""
    message: str
    """What was found last, in a sentence."""
    value: float
    """What the rule measured last, as in `AlertFired`."""
    since: datetime
    """When it was first found, an aware datetime."""

    def _describe(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"alert {self.rule!r} is over: {self.message} (since {since})"


class AlertNotSent(Event, frozen=True, kw_only=True):
    """A rule could not be evaluated, an alert could not be posted, or its job not enqueued. A later
    pass tries again."""

    level = logging.WARNING
    rule: str
    """Name of the alert rule."""
    subject: str
    """As in `AlertFired`; empty, too, if the rule could not be evaluated."""
    reason: str
    """Why, in words."""

    def _describe(self) -> str:
        return f"alert {self.rule!r}{' of ' + self.subject if self.subject else ''}: {self.reason}"


# Maintenance


class UpkeepRefused(Event, frozen=True, kw_only=True):
    """The database refuses what a part of the worker wants to do to one job. The job stays as it
    is; a later pass tries it again."""

    level = logging.ERROR
    line = "{service}: the database refuses job {job}, which stays as it is for now: {reason}"
    service: str
    """The part of the worker, such as `scheduler`."""
    job: int
    """Id of the job."""
    reason: str
    """What the database said."""


class PartitionDropped(Event, frozen=True, kw_only=True):
    """A day of history or attempts was dropped: it is older than the setting."""

    line = "retention: {partition} dropped"
    partition: str
    """Name of the table, such as `job_history_20260131`."""


class PartitionArchived(Event, frozen=True, kw_only=True):
    """A day of history or attempts was moved to the archive: it is older than the setting."""

    line = "retention: {partition} moved to the archive"
    partition: str
    """Name of the table, such as `job_history_20260131`."""


class PartitionKept(Event, frozen=True, kw_only=True):
    """A day that is older than the setting could not be dropped or archived yet. Usually a
    transaction has been open for long. A later pass tries again."""

    level = logging.WARNING
    line = "retention: {partition} stays for now: {reason}"
    partition: str
    """Name of the table, such as `job_history_20260131`."""
    reason: str
    """Why it stays, in words."""


class KeysFreed(Event, frozen=True, kw_only=True):
    """Idempotency keys were freed whose live jobs had been deleted from the table by hand."""

    level = logging.WARNING
    line = "retention: {keys} idempotency keys of deleted jobs were freed"
    keys: int
    """How many keys."""


class DeadArchived(Event, frozen=True, kw_only=True):
    """Dead jobs that no person resolved in time were moved to history, as their resolution says."""

    level = logging.WARNING
    jobs: int
    """How many jobs."""

    def _describe(self) -> str:
        return f"retention: archived {plural(self.jobs, 'dead job')} that no person resolved"
