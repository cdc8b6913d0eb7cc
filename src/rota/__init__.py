"""Rota: background and scheduled work for an application that already has PostgreSQL."""

from __future__ import annotations

from rota import errors
from rota.app import App, Synced
from rota.client.actions import Actions
from rota.client.alerts import Alerts
from rota.client.batches import Batches, NewBatch
from rota.client.breakers import Breakers
from rota.client.effects import Effects
from rota.client.lanes import Lanes
from rota.client.limits import Limit, Limits
from rota.client.queues import Queues
from rota.client.requests import ActionResult
from rota.client.schedules import Schedules
from rota.client.timeline import Entry, Timeline
from rota.declare.breaker import Breaker
from rota.declare.chunk import Chunk
from rota.declare.connection import AnyConnection, AsyncConnection, Connection
from rota.declare.context import Context, JobTransaction, context
from rota.declare.effect import Effect, EffectBlock
from rota.declare.files import write_file
from rota.declare.groups import Ordered, Process, Unique
from rota.declare.job_type import JobType, NewJob
from rota.declare.jobs import Jobs
from rota.declare.rate_limit import RateLimit
from rota.declare.release import VERSION
from rota.errors import (
    AttemptCancelled,
    AttemptTimeout,
    BatchNotFound,
    ConfigurationError,
    CopiedDatabase,
    DatabaseUnavailable,
    DeclarationError,
    EffectHeld,
    EffectNotFound,
    EmbeddedError,
    JobNotFound,
    JoinTimeout,
    KeyNotFound,
    KeyTaken,
    LimitNotFound,
    MemoryExceeded,
    PayloadError,
    ProcessDied,
    ProcessesFailed,
    RotaError,
    ScheduleNotFound,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    UnknownJobType,
    UsageError,
    WorkerExhausted,
    WrongStatus,
)
from rota.integrations import asgi, wsgi
from rota.model.awaited import JobResult
from rota.model.batch import Batch, BatchEnd
from rota.model.effect import IfUncertain
from rota.model.job import Enqueued, Job, Progress, Status
from rota.model.outcome import Cancel, Dead, RateLimited, Retry, Snooze, WaitFor
from rota.model.retry import Exponential, Fixed, Linear, Quadratic, RetryPolicy, Steps
from rota.model.schedule import Run, Schedule
from rota.model.units import Duration
from rota.observe import events
from rota.observe.events import Event
from rota.runtime import logs
from rota.store.migrate import Migrated
from rota.store.ops import (
    ActionRecord,
    AlertRecord,
    AttemptRecord,
    BreakerRecord,
    Cap,
    EffectRecord,
    Figures,
    Lane,
    LaneHolder,
    LimitRecord,
    Overrun,
    Pause,
    QueueDepth,
    Stats,
)
from rota.worker.summary import Summary

__version__ = VERSION

__all__ = [
    "ActionRecord",
    "ActionResult",
    "Actions",
    "AlertRecord",
    "Alerts",
    "AnyConnection",
    "App",
    "AsyncConnection",
    "AttemptCancelled",
    "AttemptRecord",
    "AttemptTimeout",
    "Batch",
    "BatchEnd",
    "BatchNotFound",
    "Batches",
    "Breaker",
    "BreakerRecord",
    "Breakers",
    "Cancel",
    "Cap",
    "Chunk",
    "ConfigurationError",
    "Connection",
    "Context",
    "CopiedDatabase",
    "DatabaseUnavailable",
    "Dead",
    "DeclarationError",
    "Duration",
    "Effect",
    "EffectBlock",
    "EffectHeld",
    "EffectNotFound",
    "EffectRecord",
    "Effects",
    "EmbeddedError",
    "Enqueued",
    "Entry",
    "Event",
    "Exponential",
    "Figures",
    "Fixed",
    "IfUncertain",
    "Job",
    "JobNotFound",
    "JobResult",
    "JobTransaction",
    "JobType",
    "Jobs",
    "JoinTimeout",
    "KeyNotFound",
    "KeyTaken",
    "Lane",
    "LaneHolder",
    "Lanes",
    "Limit",
    "LimitNotFound",
    "LimitRecord",
    "Limits",
    "Linear",
    "MemoryExceeded",
    "Migrated",
    "NewBatch",
    "NewJob",
    "Ordered",
    "Overrun",
    "Pause",
    "PayloadError",
    "Process",
    "ProcessDied",
    "ProcessesFailed",
    "Progress",
    "Quadratic",
    "QueueDepth",
    "Queues",
    "RateLimit",
    "RateLimited",
    "Retry",
    "RetryPolicy",
    "RotaError",
    "Run",
    "Schedule",
    "ScheduleNotFound",
    "Schedules",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "Snooze",
    "Stats",
    "Status",
    "Steps",
    "Summary",
    "Synced",
    "Timeline",
    "Unique",
    "UnknownJobType",
    "UsageError",
    "WaitFor",
    "WorkerExhausted",
    "WrongStatus",
    "__version__",
    "asgi",
    "context",
    "errors",
    "events",
    "logs",
    "write_file",
    "wsgi",
]


def __dir__() -> list[str]:
    return __all__
