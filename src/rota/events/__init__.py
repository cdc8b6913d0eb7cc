"""What happened, as dataclasses. Logs, tests and an application's own listeners hear them through a `Bus`."""

from __future__ import annotations

from rota.events.alert import AlertFired, AlertNotTold, AlertOver
from rota.events.bus import Bus
from rota.events.event import Event
from rota.events.job import (
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
    LeaseLost,
    OutcomeRefused,
)
from rota.events.schedule import RunEnqueued, RunSkipped, ScheduleDisabled, ScheduleRefused, TicksMissed
from rota.events.upkeep import DeadArchived, PartitionDropped, PartitionKept, UpkeepRefused
from rota.events.worker import DatabaseCopied, DatabaseLost, LoopBlocked, WorkerStarted, WorkerStopped

__all__ = [
    "AlertFired",
    "AlertNotTold",
    "AlertOver",
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
    "LeaseLost",
    "LoopBlocked",
    "OutcomeRefused",
    "PartitionDropped",
    "PartitionKept",
    "RunEnqueued",
    "RunSkipped",
    "ScheduleDisabled",
    "ScheduleRefused",
    "TicksMissed",
    "UpkeepRefused",
    "WorkerStarted",
    "WorkerStopped",
]
