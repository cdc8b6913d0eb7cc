"""Counts members of batches whose worker did not, and enqueues what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store import ops
from rota.upkeep.sweeper import Sweeper

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.link import StoreLink

MEND_S = 300.0
"""Between two searches for members that were deleted by hand."""
MEND_MAX = 20
"""Batches of one search."""
PERIOD_S = 1.0
"""Between two counts while something is left to count."""


class BatchFolder(Sweeper):
    """Counts what ended, as workers do for the jobs that they finish themselves.

    Left to it is what others end: members that a person cancels, that expire, or whose worker died.
    """

    name = "batch folder"

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self._mend_at = 0.0

    async def tick(self) -> float | None:
        """Count once."""
        now = self.clock.monotonic()
        if now >= self._mend_at:
            self._mend_at = now + MEND_S
            await self._link.run(ops.mend_batches(MEND_MAX))
        is_left = await self._link.run(ops.fold_batches())
        return self.find_pause_s(PERIOD_S) if is_left else None
