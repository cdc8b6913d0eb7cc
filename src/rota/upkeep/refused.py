"""Says which jobs the database does not let upkeep touch, each once in a while."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.events import UpkeepRefused

if TYPE_CHECKING:
    from rota.events import Bus
    from rota.store.ops.around import Refusals

TELL_S = 3600.0
"""The same job is told at most once in so long."""


class RefusedJobs:
    """Those that one service was refused."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._service = service
        self._told_at: dict[int, float] = {}

    def tell(self, refusals: Refusals) -> None:
        """Say of each that was not told of late what the database says."""
        if not refusals:
            return
        now = monotonic()
        self._told_at = {job: at for job, at in self._told_at.items() if now - at < TELL_S}
        for job, reason in refusals.items():
            if job not in self._told_at:
                self._told_at[job] = now
                self._bus.emit(UpkeepRefused(service=self._service, job=job, reason=reason))
