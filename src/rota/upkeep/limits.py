"""Brings jobs forward that wait for a rate limit which has slots to give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.link import StoreLink

PERIOD_S = 1.0
"""While jobs wait for limits."""
IDLE_PERIOD_S = 10.0
"""While none does: an idle worker costs next to nothing."""
PORTION = 1_000
"""Most jobs of one key that a pass plans anew."""


class LimitPlanner(Service):
    """Plans jobs anew whose limit was raised, or before which jobs are gone. If no job waits for a
    limit, a pass reads one entry of an index. A pass takes a thousand keys, the next one those
    behind them."""

    name = "limit planner"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, clock)
        self._link = link
        self._after: str | None = None
        """The last key of the pass before, if there are more behind it."""

    async def tick(self) -> float | None:
        """Plan a portion of each of the next keys anew."""
        before = self._after
        waiting, self._after = await self._link.run(ops.replan_limits(PORTION, before))
        return PERIOD_S if waiting or before else IDLE_PERIOD_S
