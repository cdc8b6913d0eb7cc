"""Reports the jobs that the database refuses to upkeep, each once in a while."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.observe.events import UpkeepRefused

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.store.isolate import Refusals

TELL_S = 3600.0
"""The same job is reported at most once in this time."""
NAMED_MAX = 20
NAMED_S = 60.0
"""At most NAMED_MAX jobs are reported in this time, so that a trigger that refuses all does not
flood the log.

The others are reported when they are refused again.
"""


class RefusedJobs:
    """The jobs that the database refused to one service."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._service = service
        self._told_at: dict[int, float] = {}

    def tell(self, refusals: Refusals) -> None:
        """Emit an event for each job that was not reported recently, up to the limit."""
        if not refusals:
            return
        now = monotonic()
        self._told_at = {job: at for job, at in self._told_at.items() if now - at < TELL_S}
        room = NAMED_MAX - sum(now - at < NAMED_S for at in self._told_at.values())
        untold = [job for job in refusals if job not in self._told_at]
        for job in untold[: max(room, 0)]:
            self._told_at[job] = now
            self._bus.emit(UpkeepRefused(service=self._service, job=job, reason=refusals[job]))
