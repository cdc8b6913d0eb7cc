"""Adds finished jobs to the figures per hour, so that readers need not count history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.link import StoreLink

PERIOD_S = 60.0
"""A minute is added when it is over, two to three minutes after it began."""


class StatsRollup(Service):
    """Adds the minutes that closed since any worker's last pass, an hour of them at a time."""

    name = "figures"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, clock)
        self._link = link

    async def tick(self) -> float | None:
        """Add up to an hour; return 0 if there is more."""
        return 0 if await self._link.run(ops.roll_up_stats()) else PERIOD_S
