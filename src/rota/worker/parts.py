"""The parts of one worker, by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.runtime.clock import Clock
    from rota.upkeep.lanes import LaneSweeper
    from rota.upkeep.waits import WaitSweeper
    from rota.worker.attempt import Attempt
    from rota.worker.claimer import Claimer
    from rota.worker.executor import Executor
    from rota.worker.finisher import Finisher
    from rota.worker.gates.gatekeeper import Gatekeeper
    from rota.worker.gates.results import ResultReader
    from rota.worker.gates.start_record import StartRecorder
    from rota.worker.health import Health
    from rota.worker.lease_keeper import LeaseKeeper
    from rota.worker.shutdown import Shutdown
    from rota.worker.spec import WorkerSpec


class Parts:
    """How the parts of a worker know each other.

    The worker makes it first and each part then, so a part looks up another when it needs it, not
    when it is made. All of them live on the worker's loop, but the lease keeper, which has a loop
    and a thread of its own: it calls the others with `loop.call_soon_threadsafe`.
    """

    executor: Executor
    """Starts attempts as slots get free, and stops them."""
    start_recorder: StartRecorder
    """The gate that records starts."""
    gatekeeper: Gatekeeper | None = None
    """Holds the attempts whose types have a rate limit or a breaker; None: no type has one."""
    finisher: Finisher
    """Writes the outcomes of attempts."""
    claimer: Claimer
    """Claims jobs as the executor has room."""
    lease_keeper: LeaseKeeper
    """Renews leases, and learns which jobs are cancelled."""
    lane_sweeper: LaneSweeper
    """Finds places of lanes and caps that nobody gave away. Without upkeep it does not run."""
    wait_sweeper: WaitSweeper
    """Lets jobs go on that wait for others. Without upkeep it does not run."""
    result_reader: ResultReader
    """The gate that reads what jobs are told of those that they waited for."""

    def __init__(
        self, spec: WorkerSpec, bus: Bus, clock: Clock, health: Health, shutdown: Shutdown
    ) -> None:
        self.spec = spec
        self.bus = bus
        self.clock = clock
        self.health = health
        self.shutdown = shutdown
        self.loop = asyncio.get_running_loop()
        """The worker's."""
        self.attempts: dict[int, Attempt] = {}
        """All that are not written yet, by job id. Written by the worker's loop only: the claimer
        adds, the finisher removes. The threads of the lease keeper read a copy."""
