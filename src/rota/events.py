"""What happened, as dataclasses. Logs, tests and an application's own listeners hear them through a `Bus`."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rota.failure import escaped, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rota.outcome import Failure

logger = logging.getLogger("rota")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in this process."""

    level: ClassVar[int] = logging.INFO
    """The level of its line in the log."""

    @property
    def level_now(self) -> int:
        """The level of this one's line, where it depends on what it says."""
        return self.level

    def text(self) -> str:
        """The line in the log."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """A step of one attempt of a job."""

    job: int
    job_type: str
    attempt: int
    claim: int
    worker: str

    def _line(self, what: str) -> str:
        return f"job {self.job} {self.job_type} attempt {self.attempt}: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaimed(JobEvent):
    """This worker holds the job; it will start as soon as a slot is free."""

    level = logging.DEBUG

    def text(self) -> str:
        return self._line(f"claimed by {self.worker}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """The job is over, and that is committed."""

    ran_s: float

    def text(self) -> str:
        return self._line(f"succeeded in {self.ran_s:.3f} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """The attempt failed and the job will be tried again, and that is committed."""

    level = logging.WARNING
    failure: Failure
    retry_in_s: float

    def text(self) -> str:
        return self._line(
            f"failed, to be retried in {self.retry_in_s:.1f} s: {self.failure.error_type}: {self.failure.message} ({self.failure.verdict_rule})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDead(JobEvent):
    """The job was given up, and that is committed: a person must look."""

    level = logging.ERROR
    failure: Failure

    def text(self) -> str:
        return self._line(f"dead: {self.failure.error_type}: {self.failure.message} ({self.failure.verdict_rule})")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(JobEvent):
    """The handler called the job off, or a person did while a worker held it, and that is committed."""

    reason: str | None

    def text(self) -> str:
        return self._line(f"cancelled: {self.reason or 'no reason given'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(JobEvent):
    """The handler put the job off without charging the attempt, and that is committed."""

    run_in_s: float
    reason: str | None

    def text(self) -> str:
        return self._line(f"snoozed for {self.run_in_s:.1f} s: {self.reason or 'no reason given'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandedBack(JobEvent):
    """The job went back uncharged, and that is committed."""

    why: str

    def text(self) -> str:
        return self._line(f"handed back: {self.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReaped(JobEvent):
    """Another worker's lease had expired; its attempt counts as lost. `worker` is the one that lost it."""

    level = logging.WARNING
    status: str

    @property
    def level_now(self) -> int:
        return logging.ERROR if self.status == "dead" else self.level

    def text(self) -> str:
        return self._line(f"lost by {self.worker}, whose lease expired; now {self.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(JobEvent):
    """This worker no longer holds the job; what its handler came to is discarded."""

    level = logging.ERROR

    def text(self) -> str:
        return self._line(f"lease lost by {self.worker}; its outcome is discarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAbandoned(JobEvent):
    """A handler goes on past its timeout and does not stop. Its slot is given up, and what it comes to is discarded. `abandoned` counts those that
    go on now; when they are as many as the worker's slots, it ends with WorkerExhausted."""

    level = logging.ERROR
    abandoned: int
    slots: int

    def text(self) -> str:
        return self._line(f"its handler does not stop after its timeout; its slot is given up ({self.abandoned} of {self.slots})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """The worker's event loop does not turn: nothing of the worker's goes on but the renewal of its leases. Said once after a second, and again when it
    is `over`. `job` and `job_type` are those of the handler that runs on it; None when it is no handler."""

    level = logging.WARNING
    job: int | None
    job_type: str | None
    blocked_s: float
    place: str
    over: bool

    def text(self) -> str:
        who = "something that is no handler" if self.job is None else f"job {self.job} {self.job_type}"
        return f"{who}: {'blocked' if self.over else 'has been blocking'} the event loop for {self.blocked_s:.1f} s at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRefused(JobEvent):
    """What the attempt came to cannot be written, while that of others can. Said once for an attempt; the worker goes on trying for `for_s`, then
    leaves the job to its lease: it is reaped, and the attempt counts as lost."""

    level = logging.ERROR
    reason: str
    for_s: float

    def text(self) -> str:
        return self._line(
            f"the database refuses what it came to; tried again for {self.for_s:.0f} s, then left to its lease: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker is about to claim."""

    worker: str
    release: str
    queues: str

    def text(self) -> str:
        return f"worker {self.worker} started, release {self.release}, queues {self.queues}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker has recorded everything it had and is gone."""

    worker: str

    def text(self) -> str:
        return f"worker {self.worker} stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(Event):
    """A part of the worker could not reach the database and tries again."""

    level = logging.WARNING
    service: str
    reason: str
    retry_in_s: float

    def text(self) -> str:
        return f"{self.service}: database unavailable, next try in {self.retry_in_s:.1f} s: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopied(Event):
    """This is a restored copy: the worker claims nothing and does no upkeep until somebody says that it may. Said once a minute."""

    level = logging.ERROR
    reason: str

    def text(self) -> str:
        return f"this is a restored copy ({self.reason}): nothing is claimed and no upkeep done until `rota resume --copy`"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRefused(Event):
    """The database refuses what a part of the worker would do to one job, which stays as it is; the others are seen to, and a later pass tries again."""

    level = logging.ERROR
    service: str
    job: int
    reason: str

    def text(self) -> str:
        return f"{self.service}: the database refuses job {self.job}, which stays as it is for now: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnqueued(Event):
    """A tick of a schedule became a job."""

    schedule: str
    job: int
    scheduled_for: datetime

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: job {self.job} enqueued for {self.scheduled_for:%Y-%m-%d %H:%M}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(Event):
    """A tick of a schedule was skipped, because the job `live` of it was still going. `job` is its row in history."""

    level = logging.WARNING
    schedule: str
    job: int
    scheduled_for: datetime
    live: int

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: tick {self.scheduled_for:%Y-%m-%d %H:%M}Z skipped as job {self.job}, job {self.live} is still going"


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksMissed(Event):
    """So many ticks, counted up to a hundred, came while no worker was up, and are passed over: `catch_up` says so."""

    level = logging.WARNING
    schedule: str
    ticks: int
    next_run_at: datetime

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: {self.ticks} missed ticks passed over; the next is {self.next_run_at:%Y-%m-%d %H:%M}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRefused(Event):
    """A schedule cannot be planned, or its job not be enqueued. `paused`: it is the row's own fault, and it is paused until somebody mends it; else a
    later pass tries again."""

    level = logging.ERROR
    schedule: str
    reason: str
    paused: bool

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: {'paused' if self.paused else 'its tick has to wait'}: {one_line(self.reason)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDisabled(Event):
    """The newest release has not declared the schedule for an hour; it no longer runs."""

    level = logging.WARNING
    schedule: str

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: disabled, the newest release does not declare it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDropped(Event):
    """A day of history or attempts was dropped: it is older than what is kept."""

    partition: str

    def text(self) -> str:
        return f"retention: {self.partition} dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKept(Event):
    """A day that is older than what is kept could not be dropped yet: mostly, somebody keeps a transaction open. A later pass tries again."""

    level = logging.WARNING
    partition: str
    reason: str

    def text(self) -> str:
        return f"retention: {self.partition} stays for now: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPutAway(Event):
    """So many dead jobs that nobody resolved for as long as they are kept moved to history, with a resolution that says so."""

    level = logging.WARNING
    jobs: int

    def text(self) -> str:
        return f"retention: {self.jobs} dead jobs that nobody resolved are put away"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFired(Event):
    """A rule of alerts found something that a person should know, or, `repeated`, still finds it after a while. `subject` is an error type, a queue, a
    job type or a schedule; empty where the rule has but one. Of a whole fleet one process tells it."""

    level = logging.ERROR
    rule: str
    subject: str
    severity: str
    message: str
    value: float
    since: datetime
    repeated: bool

    def text(self) -> str:
        since = f" (since {self.since.isoformat(timespec='seconds')})" if self.repeated else ""
        return f"alert {self.rule!r}: {self.message}{since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOver(Event):
    """What an alert was about has not been found any more, twice in a row. `message` and `value` are the last that were found."""

    rule: str
    subject: str
    message: str
    value: float
    since: datetime

    def text(self) -> str:
        return f"alert {self.rule!r} is over: {self.message} (since {self.since.isoformat(timespec='seconds')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotTold(Event):
    """A rule could not be evaluated, or an alert could not be posted, or its job not enqueued. A later pass evaluates and posts again."""

    level = logging.WARNING
    rule: str
    subject: str
    reason: str

    def text(self) -> str:
        return f"alert {self.rule!r}{' of ' + self.subject if self.subject else ''}: {self.reason}"


E = TypeVar("E", bound=Event)


class Bus:
    """Hands each event to those who asked for its class, or a class above it, and to the log. A failing listener harms nothing but itself."""

    def __init__(self) -> None:
        self._listeners: dict[type[Event], list[Callable[[Any], object]]] = defaultdict(list)

    def on(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call `listener(event)` for each event of that class, in the thread and loop where it happened; it must return quickly."""
        self._listeners[kind].append(listener)

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody would hear such an event; those who emit many ask first."""
        return logger.isEnabledFor(kind.level) or any(base in self._listeners for base in kind.__mro__)

    def emit(self, event: Event) -> None:
        """Log the event and tell the listeners."""
        logger.log(event.level_now, "%s", escaped(event.text()), extra={"rota_event": event})
        if not self._listeners:
            return
        for base in type(event).__mro__:
            for listener in self._listeners.get(base, ()):
                try:
                    listener(event)
                except (Exception, SystemExit):
                    logger.exception("a listener for %s failed; the job is not affected", type(event).__name__)
