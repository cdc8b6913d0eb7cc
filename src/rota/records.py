"""What calls return, and what else annotations may name: records, namespaces, and `Tables`; `both`
for the verbs of a kind of jobs."""

# ruff: noqa: PLC0414 - `import A as A` says that others may import it from here

from __future__ import annotations

from rota.app import Synced as Synced
from rota.client.actions import JobActions as JobActions
from rota.client.alerts import Alerts as Alerts
from rota.client.batches import Batches as Batches
from rota.client.batches import NewBatch as NewBatch
from rota.client.both import awaitable as awaitable
from rota.client.both import both as both
from rota.client.breakers import Breakers as Breakers
from rota.client.effects import Effects as Effects
from rota.client.erase import Erased as Erased
from rota.client.groups import Groups as Groups
from rota.client.limits import Limits as Limits
from rota.client.queues import Queues as Queues
from rota.client.requests import ActionResult as ActionResult
from rota.client.schedules import Schedules as Schedules
from rota.client.timeline import Entry as Entry
from rota.client.timeline import Timeline as Timeline
from rota.declare.connection import AnyConnection as AnyConnection
from rota.declare.connection import AsyncConnection as AsyncConnection
from rota.declare.connection import Connection as Connection
from rota.declare.context import JobTransaction as JobTransaction
from rota.declare.effect import Effect as Effect
from rota.declare.effect import EffectBlock as EffectBlock
from rota.declare.job_type import NewJob as NewJob
from rota.declare.options import JobOptions as JobOptions
from rota.declare.options import UsingOptions as UsingOptions
from rota.declare.tables import Tables as Tables
from rota.model.awaited import JobResult as JobResult
from rota.model.batch import Batch as Batch
from rota.model.batch import BatchEnd as BatchEnd
from rota.model.effect import IfUncertain as IfUncertain
from rota.model.job import Progress as Progress
from rota.model.job import StatusName as StatusName
from rota.model.job import WaitReason as WaitReason
from rota.model.metric import Metric as Metric
from rota.model.retry import RetryPolicy as RetryPolicy
from rota.model.schedule import Run as Run
from rota.model.schedule import Schedule as Schedule
from rota.model.units import Duration as Duration
from rota.store.migrate import Migrated as Migrated
from rota.store.ops import ActionRecord as ActionRecord
from rota.store.ops import AlertRecord as AlertRecord
from rota.store.ops import AttemptRecord as AttemptRecord
from rota.store.ops import BreakerRecord as BreakerRecord
from rota.store.ops import ConcurrencyLimit as ConcurrencyLimit
from rota.store.ops import EffectRecord as EffectRecord
from rota.store.ops import ErrorRecord as ErrorRecord
from rota.store.ops import Figures as Figures
from rota.store.ops import Group as Group
from rota.store.ops import GroupHolder as GroupHolder
from rota.store.ops import LimitRecord as LimitRecord
from rota.store.ops import Pause as Pause
from rota.store.ops import QueueDepth as QueueDepth
from rota.store.ops import Stats as Stats
from rota.worker.summary import Summary as Summary
