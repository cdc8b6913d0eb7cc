"""Brings jobs forward that wait for a rate limit which has slots to give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store import ops
from rota.upkeep.sweeper import Sweeper

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.link import StoreLink

PERIOD_S = 1.0
"""While jobs wait for limits."""
PORTION = 1_000
"""Most jobs of one key that a pass plans anew."""


class LimitPlanner(Sweeper):
    """Plans jobs anew whose limit was raised, or before which jobs are gone. A pass takes a
    thousand keys, the next one those behind them."""

    name = "limit planner"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self._after: str | None = None
        """The last key of the pass before, if there are more behind it."""

    async def tick(self) -> float | None:
        """Plan a portion of each of the next keys anew."""
        before = self._after
        waiting, self._after = await self._link.run(ops.replan_limits(PORTION, before))
        return self.find_pause_s(PERIOD_S) if waiting or before else None
