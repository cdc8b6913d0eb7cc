"""Finds free places in lanes and limits, and closed breakers, that no waiting job was told of."""

from __future__ import annotations

from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock, count_usual
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.sweeper import Sweeper

PERIOD_S = 1.0
"""Seconds between two passes while jobs wait for lanes, limits or breakers."""
HASTE_S = 10.0
"""How long a worker that had to let jobs wait passes often, whoever else does."""
COUNT_S = 10.0
"""Seconds between two searches for running jobs that began before their limit was set by hand."""
PORTION = 500
"""Most lanes, limits and breakers per statement; each costs about 20 µs."""
SHARE = 0.05
"""Share of one connection's time for later portions: jobs may wait for 100,000 lanes."""


class LaneSweeper(Sweeper):
    """Passes over the lanes, limits and breakers with waiting jobs.

    Whoever frees a place gives it away in the same transaction. The sweeper finds the rest: jobs
    that were deleted by hand or cancelled in a transaction of the application, and locked lanes.
    """

    name = "group sweeper"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self._after = ""
        """The name behind which the pass continues, as in `job.waits_for`; '': from the first."""
        self._is_first = True
        self._finds_waiting = False
        self._hastens_until = 0.0
        self._count_at = 0.0
        self._took_s = PERIOD_S * SHARE

    def hasten(self) -> None:
        """Pass often for a while: a claim had to let jobs wait."""
        now = self.clock.monotonic()
        if now >= self._hastens_until:
            self.wake()
        self._hastens_until = now + HASTE_S

    async def tick(self) -> float | None:
        """Do one portion of a pass. The first pass, before a drain's jobs, pauses nowhere."""
        before = self.clock.monotonic()
        counts = before >= self._count_at
        sweep = await self._link.run(ops.sweep_rooms(self._after, PORTION, counts=counts))
        if counts:
            self._count_at = before + COUNT_S
        self._finds_waiting = sweep.rooms > 0 or (self._finds_waiting and self._after != "")
        self._after = sweep.last_room or ""
        if self._after:
            self._took_s = count_usual(self.clock.monotonic() - before, self._took_s)
            return 0 if self._is_first else self._took_s / SHARE
        self._is_first = False
        if self.clock.monotonic() < self._hastens_until:
            return PERIOD_S
        return self.find_pause_s(PERIOD_S) if self._finds_waiting else None
