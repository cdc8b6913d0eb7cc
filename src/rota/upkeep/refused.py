"""Says which jobs the database does not let upkeep touch, each once in a while."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.observe.events import UpkeepRefused

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.isolate import Refusals

TELL_S = 3600.0
"""The same job is told at most once in so long."""
NAMED_MAX = 20
NAMED_S = 60.0
"""So many jobs are named in so long: a trigger that refuses all of them does not fill the log. The others are when they are refused again."""


class RefusedJobs:
    """Those that one service was refused."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._service = service
        self._told_at: dict[int, float] = {}

    def tell(self, refusals: Refusals) -> None:
        """Say of each that was not told of late what the database says, as far as there is room."""
        if not refusals:
            return
        now = monotonic()
        self._told_at = {job: at for job, at in self._told_at.items() if now - at < TELL_S}
        room = NAMED_MAX - sum(now - at < NAMED_S for at in self._told_at.values())
        untold = [job for job in refusals if job not in self._told_at]
        for job in untold[: max(room, 0)]:
            self._told_at[job] = now
            self._bus.emit(UpkeepRefused(service=self._service, job=job, reason=refusals[job]))
