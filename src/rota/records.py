"""What calls return, and what else one may write in annotations: records, the namespaces of an App,
and the tables of a package."""

from __future__ import annotations

from rota.app import Synced
from rota.client.actions import JobActions
from rota.client.alerts import Alerts
from rota.client.batches import Batches, NewBatch
from rota.client.breakers import Breakers
from rota.client.effects import Effects
from rota.client.erase import Erased
from rota.client.groups import Groups
from rota.client.limits import Limits
from rota.client.queues import Queues
from rota.client.requests import ActionResult
from rota.client.schedules import Schedules
from rota.client.timeline import Entry, Timeline
from rota.declare.connection import AnyConnection, AsyncConnection, Connection
from rota.declare.context import JobTransaction
from rota.declare.effect import Effect, EffectBlock
from rota.declare.job_type import NewJob
from rota.declare.options import JobOptions, UsingOptions
from rota.declare.tables import Tables
from rota.model.awaited import JobResult
from rota.model.batch import Batch, BatchEnd
from rota.model.effect import IfUncertain
from rota.model.job import Progress, WaitReason
from rota.model.metric import Metric
from rota.model.retry import RetryPolicy
from rota.model.schedule import Run, Schedule
from rota.model.units import Duration
from rota.store.migrate import Migrated
from rota.store.ops import (
    ActionRecord,
    AlertRecord,
    AttemptRecord,
    BreakerRecord,
    ConcurrencyLimit,
    EffectRecord,
    ErrorRecord,
    Figures,
    Group,
    GroupHolder,
    LimitRecord,
    Pause,
    QueueDepth,
    Stats,
)
from rota.worker.summary import Summary

__all__ = [
    "ActionRecord",
    "ActionResult",
    "AlertRecord",
    "Alerts",
    "AnyConnection",
    "AsyncConnection",
    "AttemptRecord",
    "Batch",
    "BatchEnd",
    "Batches",
    "BreakerRecord",
    "Breakers",
    "ConcurrencyLimit",
    "Connection",
    "Duration",
    "Effect",
    "EffectBlock",
    "EffectRecord",
    "Effects",
    "Entry",
    "Erased",
    "ErrorRecord",
    "Figures",
    "Group",
    "GroupHolder",
    "Groups",
    "IfUncertain",
    "JobActions",
    "JobOptions",
    "JobResult",
    "JobTransaction",
    "LimitRecord",
    "Limits",
    "Metric",
    "Migrated",
    "NewBatch",
    "NewJob",
    "Pause",
    "Progress",
    "QueueDepth",
    "Queues",
    "RetryPolicy",
    "Run",
    "Schedule",
    "Schedules",
    "Stats",
    "Summary",
    "Synced",
    "Tables",
    "Timeline",
    "UsingOptions",
    "WaitReason",
]  # fmt: skip
