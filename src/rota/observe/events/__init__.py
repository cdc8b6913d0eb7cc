"""Events as dataclasses. A `Bus` hands them to the log and to an application's listeners."""

from __future__ import annotations

from rota.observe.events.alert import AlertFired, AlertNotSent, AlertOver
from rota.observe.events.breaker import BreakerClosed, BreakerOpened
from rota.observe.events.bus import Bus
from rota.observe.events.event import Event
from rota.observe.events.job import (
    HandlerAbandoned,
    JobCancelled,
    JobClaimed,
    JobDead,
    JobEvent,
    JobFailed,
    JobHandedBack,
    JobReaped,
    JobSnoozed,
    JobSucceeded,
    JobWaiting,
    LeaseLost,
    OutcomeRefused,
    PayloadUnread,
)
from rota.observe.events.schedule import (
    RunEnqueued,
    RunSkipped,
    RunsMissed,
    ScheduleDisabled,
    ScheduleRefused,
)
from rota.observe.events.upkeep import (
    DeadArchived,
    KeysFreed,
    PartitionArchived,
    PartitionDropped,
    PartitionKept,
    UpkeepRefused,
)
from rota.observe.events.worker import (
    DatabaseCopied,
    DatabaseLost,
    LoopBlocked,
    WorkerStarted,
    WorkerStopped,
)

__all__ = [
    "AlertFired",
    "AlertNotSent",
    "AlertOver",
    "BreakerClosed",
    "BreakerOpened",
    "Bus",
    "DatabaseCopied",
    "DatabaseLost",
    "DeadArchived",
    "Event",
    "HandlerAbandoned",
    "JobCancelled",
    "JobClaimed",
    "JobDead",
    "JobEvent",
    "JobFailed",
    "JobHandedBack",
    "JobReaped",
    "JobSnoozed",
    "JobSucceeded",
    "JobWaiting",
    "KeysFreed",
    "LeaseLost",
    "LoopBlocked",
    "OutcomeRefused",
    "PartitionArchived",
    "PartitionDropped",
    "PartitionKept",
    "PayloadUnread",
    "RunEnqueued",
    "RunSkipped",
    "RunsMissed",
    "ScheduleDisabled",
    "ScheduleRefused",
    "UpkeepRefused",
    "WorkerStarted",
    "WorkerStopped",
]
