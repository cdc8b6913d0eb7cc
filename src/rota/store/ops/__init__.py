"""Every store operation, as a generator of queries. Nothing here waits, sleeps or decides."""

# ruff: noqa: F403 - each file's public names are read as `ops.claim`, `ops.Claimed`, …

from __future__ import annotations

from rota.store.ops.actions import *
from rota.store.ops.alert import *
from rota.store.ops.ask import *
from rota.store.ops.awaited import *
from rota.store.ops.breaker import *
from rota.store.ops.call import *
from rota.store.ops.claim import *
from rota.store.ops.effect import *
from rota.store.ops.enqueue import *
from rota.store.ops.erase import *
from rota.store.ops.expire import *
from rota.store.ops.fan_out import *
from rota.store.ops.figures import *
from rota.store.ops.finish import *
from rota.store.ops.job_types import *
from rota.store.ops.lanes import *
from rota.store.ops.lease import *
from rota.store.ops.limits import *
from rota.store.ops.metrics import *
from rota.store.ops.partitions import *
from rota.store.ops.pause import *
from rota.store.ops.read import *
from rota.store.ops.reap import *
from rota.store.ops.retention import *
from rota.store.ops.schedules import *
from rota.store.ops.secrets import *
from rota.store.ops.upkeep import *
from rota.store.ops.waits import *
from rota.store.ops.workers import *
