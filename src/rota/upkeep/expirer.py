"""Ends jobs that were not started before their expiry, even if no worker asks for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.model.job import Status
from rota.model.outcome import Failure
from rota.observe.events import Bus, JobCancelled, JobDead
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import Overdue
from rota.upkeep.quarantine import RefusalLog
from rota.upkeep.sweeper import Sweeper

PORTION = 500


class Expirer(Sweeper):
    """Passes over the expired jobs in portions. An unclaimed job ends about ten seconds after its
    expiry; the worker of a job that is claimed too late ends it."""

    name = "expirer"

    def __init__(self, bus: Bus, link: StoreLink, worker: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self._refused = RefusalLog(bus, self.name, clock)
        self._worker = worker
        self._after: tuple[datetime, int] | None = None
        """Where the current pass continues; None between two passes."""
        self._took_s = 0.0

    async def tick(self) -> float | None:
        """End one portion of the pass; return 0 if there may be more."""
        before = self.clock.monotonic()
        if self._after is None:
            self._after = (self.reading.begin(), 0)
            self._took_s = 0.0
        started, expired, refusals = await self._link.run(
            ops.expire(self._worker, *self._after, PORTION)
        )
        self._took_s += self.clock.monotonic() - before
        self._refused.report(refusals)
        more = bool(expired) and len(expired) + len(refusals) >= PORTION
        self._after = max((gone.expires_at, gone.job) for gone in expired) if more else None
        if not more:
            self.reading.end(started, self._took_s)
        for gone in expired:
            self.bus.emit(self._make_event(gone))
        return 0 if more else None

    def _make_event(self, gone: Overdue) -> JobCancelled | JobDead:
        names = ("job", "job_type", "attempt", "claim")
        of: dict[str, Any] = {name: getattr(gone, name) for name in names}
        of["worker"] = self._worker
        if gone.status == Status.CANCELLED:
            return JobCancelled(**of, reason=gone.message)
        return JobDead(**of, failure=Failure("Expired", gone.message, "fatal", "expired"))
