"""Lets jobs go on whose awaited jobs have ended."""

from __future__ import annotations

import asyncio

from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock, count_usual
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.sweeper import Sweeper

PERIOD_S = (0.25, 10.0)
"""Seconds between two passes while jobs wait: of all workers together, and at most of one
worker."""
LEAST_S = 0.05
"""Seconds between two passes of a worker whose own jobs end."""
PORTION = 1_000
"""Most waiting jobs of a statement; each costs about 2 µs."""
SHARE = 0.05
"""Share of one connection's time, over all workers, for passes that let no job go."""
BUSY_TRIES = 20
"""How often a drain that is about to end asks again while another session sweeps."""


class WaitSweeper(Sweeper):
    """Passes over the jobs that wait for others. The jobs ask: so a job that ends pays nothing."""

    name = "wait sweeper"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self.workers = 1
        """How many workers share the passes. Written by the claimer."""
        self.waiting = 0
        """How many jobs wait for others, as far as this worker knows; rather too many."""
        self.released = 0
        self._after = ""
        """The name behind which the pass continues; '': from the first."""
        self._seen = 0
        """How many waiting jobs this pass has read, with jobs that began to wait meanwhile."""
        self._took_s = LEAST_S
        self._least_at = 0.0
        """When it may pass again if jobs of this worker end or begin to wait."""

    def note_wait(self) -> None:
        """Note that a job of this worker has begun to wait: it may wait for an ended job."""
        self.waiting += 1
        self._seen += 1
        self.wake()

    async def tick(self) -> float | None:
        before = self.clock.monotonic()
        if before < self._least_at:
            return self._least_at - before
        sweep = await self._link.run(ops.sweep_waits(self._after, PORTION))
        self.released += sweep.released
        now = self.clock.monotonic()
        rest_s = LEAST_S
        if not sweep.released:
            self._took_s = count_usual(now - before, self._took_s)
            rest_s = max(LEAST_S, self._took_s * self.workers / SHARE)
        self._least_at = now + rest_s
        self._seen += sweep.waits - sweep.released
        self._after = sweep.last_wait or ""
        if self._after:
            return rest_s
        if not sweep.is_busy:
            self.waiting = self._seen
        self._seen = 0
        if not self.waiting:
            return None
        return max(min(PERIOD_S[0] * self.workers, PERIOD_S[1]), rest_s)

    async def find_released(self) -> bool:
        """Let jobs go on before a drain ends; return whether a further job may be due."""
        after, waiting, tries = "", 0, 0
        while True:
            sweep = await self._link.run(ops.sweep_waits(after, PORTION))
            self.released += sweep.released
            waiting += sweep.waits - sweep.released
            after = sweep.last_wait or ""
            if sweep.is_busy and tries < BUSY_TRIES:
                tries += 1
                await self.clock.wait(asyncio.Event(), timeout_s=LEAST_S)
            elif not after:
                break
        is_less = waiting < self.waiting
        self.waiting = waiting
        return is_less
