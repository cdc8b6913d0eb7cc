"""Lets jobs go on that wait for jobs which have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.link import StoreLink

PERIOD_S = (0.25, 10.0)
"""Between two passes of all workers together while jobs wait for others, and of each worker while
none does."""
LEAST_S = 0.05
"""Between two passes of a worker whose own jobs end."""
BATCH = 1_000
"""Most waiting jobs of a statement; one of them costs about 10 µs."""
SHARE = 0.05
"""Of one connection's time, over all workers."""
BUSY_TRIES = 20
"""How often a drain that is about to end asks again while another session sweeps."""


class WaitSweeper(Service):
    """Passes over the jobs that wait for others.

    They ask; who ends a job does not tell. So a job that ends pays nothing for those that wait.
    """

    name = "wait sweeper"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, clock)
        self.workers = 1
        """How many workers share the passes. Written by the lease keeper."""
        self.finds_waiting = False
        """Whether jobs waited for others when it last passed, or one of this worker's has begun to
        wait since."""
        self.released = 0
        """How many jobs it has let go. A drain does not end without another claim after that."""
        self._link = link
        self._after = ""
        """The name behind which the pass continues; '': from the first."""
        self._has_seen = False
        """Whether this pass has seen a waiting job, or may have missed one."""
        self._least_at = 0.0

    def note_wait(self) -> None:
        """Note that a job of this worker has begun to wait: what it waits for may have ended
        before."""
        self.finds_waiting = self._has_seen = True
        self.wake()

    async def tick(self) -> float | None:
        """Read one batch of waiting jobs."""
        before = self.clock.monotonic()
        if before < self._least_at:
            return self._least_at - before
        sweep = await self._link.run(ops.sweep_waits(self._after, BATCH))
        self.released += sweep.released
        now = self.clock.monotonic()
        rest_s = max(LEAST_S, (now - before) * self.workers / SHARE)
        self._least_at = now + rest_s
        self._after = sweep.last_wait or ""
        self._has_seen = self._has_seen or sweep.is_busy or sweep.waits > 0
        if self._after:
            return rest_s
        self.finds_waiting, self._has_seen = self._has_seen, False
        if not self.finds_waiting:
            return PERIOD_S[1]
        return max(min(PERIOD_S[0] * self.workers, PERIOD_S[1]), rest_s)

    async def find_released(self) -> bool:
        """Return whether a job goes on now, before a drain ends."""
        after, tries = "", 0
        while True:
            sweep = await self._link.run(ops.sweep_waits(after, BATCH))
            if sweep.released:
                return True
            after = sweep.last_wait or ""
            if sweep.is_busy and tries < BUSY_TRIES:
                tries += 1
                await self.clock.wait(asyncio.Event(), timeout_s=LEAST_S)
            elif not after:
                return sweep.is_busy
