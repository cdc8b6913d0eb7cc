"""Takes jobs from workers that let their leases expire."""

from __future__ import annotations

from typing import Any

from rota.errors import DatabaseUnavailable
from rota.model.job import Status
from rota.model.outcome import Failure
from rota.observe.events import Bus, JobCancelled, JobDead, JobReaped
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.quarantine import RefusalLog
from rota.upkeep.sweeper import Sweeper

PORTION = 500
AGAIN_S = 1.1
"""Pause after a pass that took jobs: the leases of a dead worker's other jobs end soon too. Look
backs, which the jobs cause, are at most once a second."""
STEADY_S = 60.0
"""Seconds after an outage until `job_reap` gives other workers no more time."""


class Reaper(Sweeper):
    name = "reaper"
    asked_every_s = 3.0
    """Between two questions: a lease that none of them saw ends, and five seconds later its job is
    due."""

    def __init__(
        self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK, spare: StoreLink | None = None
    ) -> None:
        """`spare`: a link to use after a failure, which may be open; then its own again."""
        super().__init__(bus, link, clock)
        self._links = (link, spare or link)
        self._refused = RefusalLog(bus, self.name, clock)
        self._is_away = False
        self._back_at: float | None = None
        self._step: tuple[float, float] | None = None

    def note_outage(self, error: DatabaseUnavailable) -> None:
        """Note that a connection of maintenance was lost.

        Other workers may have lost theirs too. After an outage they get time to renew before the
        reaper takes their jobs; but not if the database answers and refuses.
        """
        if not error.refused:
            self._is_away = True
        elif self._is_away:
            self.note_back()

    def note_back(self) -> None:
        """Note that the database answers. After an outage the time to renew starts now."""
        if self._is_away:
            self._is_away = False
            self._back_at = self.clock.monotonic()

    @property
    def is_steady(self) -> bool:
        """Whether it takes all jobs whose leases have expired."""
        steady_s = self._find_steady_s(self.clock.monotonic())
        return steady_s is None or steady_s > STEADY_S

    def note_step(self, step_s: float, moved_s: float) -> None:
        """Note that the server's clock was set by `step_s`, after moves of leases by `moved_s`."""
        self._step = step_s, moved_s
        self.wake()

    def handle_outage(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        """Note that the database is away, unless there is a spare link to try first."""
        if self._links[(self.back_off.tries - 1) % 2] is self._links[1]:
            self.note_outage(error)
        return super().handle_outage(error, back_off_s)

    async def tick(self) -> float | None:
        """Reap what has expired since the last pass; return 0 if there was more than a portion."""
        before = self.clock.monotonic()
        link = self._links[self.back_off.tries % 2]
        steady_s, step = self._find_steady_s(before), self._step
        operation = ops.reap(self.reading.begin(), PORTION, steady_s, step)
        started, reaped, refusals = await link.run(operation)
        if self._step == step:  # no further step meanwhile
            self._step = None
        self.note_back()
        self._refused.report(refusals)
        more = bool(reaped) and len(reaped) + len(refusals) >= PORTION
        if not more:
            self.reading.end(started, self.clock.monotonic() - before)
        for lost in reaped:
            names = ("job", "job_type", "attempt", "claim", "worker")
            of: dict[str, Any] = {name: getattr(lost, name) for name in names}
            self.bus.emit(JobReaped(**of, status=lost.status))
            if lost.status == Status.CANCELLED:
                self.bus.emit(JobCancelled(**of, reason=lost.reason))
            if lost.status == Status.DEAD:
                # The same as job_reap writes into the table.
                why = lost.reason or ""
                failure = Failure("LeaseExpired", why, "transient", "lease expired")
                self.bus.emit(JobDead(**of, failure=failure))
        if more:
            return 0
        return AGAIN_S if reaped else None

    def _find_steady_s(self, now: float) -> float | None:
        """Return how long the connection has been up; None: it was never lost."""
        if self._is_away:
            return 0.0
        return None if self._back_at is None else now - self._back_at
