"""The parts of one worker, by name: for who starts and stops them."""

from __future__ import annotations

from dataclasses import dataclass

from rota.worker.by_hand import Picker
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor
from rota.worker.finisher import Finisher
from rota.worker.lease_keeper import LeaseKeeper


@dataclass(frozen=True, slots=True)
class Parts:
    """All of them live on the worker's loop, but the lease keeper, which has a loop and a thread of
    its own: it calls the others with `loop.call_soon_threadsafe`."""

    finisher: Finisher
    executor: Executor
    claimer: Claimer | Picker
    lease_keeper: LeaseKeeper
