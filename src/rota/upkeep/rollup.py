"""Adds finished jobs to the figures per hour, so that readers need not count history."""

from __future__ import annotations

from rota.store import ops
from rota.upkeep.sweeper import Sweeper


class StatsRollup(Sweeper):
    """Adds the minutes that closed since any worker's last pass, an hour of them at a time."""

    name = "figures"

    async def tick(self) -> float | None:
        """Add up to an hour; return 0 if there is more."""
        return 0 if await self._link.run(ops.roll_up_stats()) else None
