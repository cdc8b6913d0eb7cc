"""Rota: background and scheduled work for an application that already has PostgreSQL."""

from __future__ import annotations

from rota import errors
from rota.app import App
from rota.client.requests import ActionResult
from rota.client.timeline import Timeline
from rota.declare.connection import AnyConnection, AsyncConnection, Connection
from rota.declare.context import Context, context
from rota.declare.effect import Effect
from rota.declare.files import write_file
from rota.declare.job_type import Enqueued, JobType, NewJob
from rota.declare.jobs import Jobs
from rota.declare.release import VERSION
from rota.errors import (
    AttemptCancelled,
    AttemptTimeout,
    ConfigurationError,
    CopiedDatabase,
    DatabaseUnavailable,
    DeclarationError,
    EffectHeld,
    EffectNotFound,
    JobNotFound,
    JoinTimeout,
    KeyNotFound,
    KeyTaken,
    PayloadError,
    RotaError,
    ScheduleNotFound,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    UnknownJobType,
    UsageError,
    WrongStatus,
)
from rota.integrations import asgi
from rota.model.effect import IfUncertain
from rota.model.job import Job, Status
from rota.model.outcome import Cancel, Dead, Retry, Snooze
from rota.model.retry import Exponential, Fixed, Linear, Quadratic, RetryPolicy, Steps
from rota.model.schedule import Run, Schedule
from rota.observe import events
from rota.runtime import logs
from rota.store.migrate import Migrated
from rota.store.ops import (
    ActionRecord,
    AlertRecord,
    AttemptRecord,
    EffectRecord,
    Pause,
    QueueDepth,
    Stats,
)
from rota.worker.summary import Summary

__version__ = VERSION

__all__ = [
    "ActionRecord",
    "ActionResult",
    "AlertRecord",
    "AnyConnection",
    "App",
    "AsyncConnection",
    "AttemptCancelled",
    "AttemptRecord",
    "AttemptTimeout",
    "Cancel",
    "ConfigurationError",
    "Connection",
    "Context",
    "CopiedDatabase",
    "DatabaseUnavailable",
    "Dead",
    "DeclarationError",
    "Effect",
    "EffectHeld",
    "EffectNotFound",
    "EffectRecord",
    "Enqueued",
    "Exponential",
    "Fixed",
    "IfUncertain",
    "Job",
    "JobNotFound",
    "JobType",
    "Jobs",
    "JoinTimeout",
    "KeyNotFound",
    "KeyTaken",
    "Linear",
    "Migrated",
    "NewJob",
    "Pause",
    "PayloadError",
    "Quadratic",
    "QueueDepth",
    "Retry",
    "RetryPolicy",
    "RotaError",
    "Run",
    "Schedule",
    "ScheduleNotFound",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "Snooze",
    "Stats",
    "Status",
    "Steps",
    "Summary",
    "Timeline",
    "UnknownJobType",
    "UsageError",
    "WrongStatus",
    "__version__",
    "asgi",
    "context",
    "errors",
    "events",
    "logs",
    "write_file",
]
