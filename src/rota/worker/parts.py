"""The parts of one worker, by name, for their start and stop."""

from __future__ import annotations

from dataclasses import dataclass

from rota.worker.by_hand import Picker
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor
from rota.worker.finisher import Finisher
from rota.worker.lease_keeper import LeaseKeeper


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts live on the worker's loop. Only the lease keeper has its own loop and thread: it
    calls the others with `loop.call_soon_threadsafe`."""

    finisher: Finisher
    executor: Executor
    claimer: Claimer | Picker
    lease_keeper: LeaseKeeper
