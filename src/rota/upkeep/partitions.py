"""Makes the daily partitions of history and attempts ahead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from rota.events import Bus
    from rota.store.db import Link

PERIOD_S = 3600.0


class Partitioner(Service):
    """Looks once an hour whether a partition is missing."""

    name = "partitioner"

    def __init__(self, bus: Bus, link: Link) -> None:
        super().__init__(bus)
        self._link = link

    async def tick(self) -> float | None:
        """Make what is missing."""
        await self._link.run(ops.ensure_partitions())
        return PERIOD_S
