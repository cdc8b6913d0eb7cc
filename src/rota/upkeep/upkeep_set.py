"""All maintenance: the services of every worker, and the pass of a drain before its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf

from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.alerts import Alerter
from rota.upkeep.asker import Asker
from rota.upkeep.expirer import Expirer
from rota.upkeep.lanes import LaneSweeper
from rota.upkeep.pinger import Pinger
from rota.upkeep.reaper import Reaper
from rota.upkeep.retention import Retention
from rota.upkeep.scheduler import Scheduler
from rota.upkeep.sweeper import Sweeper
from rota.upkeep.sweeps import FIGURES, LIMITS, SWEEPS, PlainSweeper
from rota.upkeep.waits import WaitSweeper

EACH_S = 1.0
"""Longest time for each part of maintenance before the jobs of a drain."""
FIGURES_S = 5.0
"""Longest time for the figures before the jobs of a drain, which may be the first drain in days."""
LOCK_S = 0.1
"""Longest wait of a part for a lock, in seconds: good transactions hold no lock for longer."""


class UpkeepSet:
    def __init__(
        self,
        bus: Bus,
        database: Database,
        shared: StoreLink,
        worker: str,
        alert_url: str | None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        is_drain: bool = False,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._database = database
        reaping = shared if is_drain else StoreLink(database, "reap", is_kept=False)
        reaper = Reaper(bus, reaping, clock, spare=shared)
        scheduler = Scheduler(bus, shared, clock)
        self.lane_sweeper = LaneSweeper(bus, shared, clock)
        self.wait_sweeper = WaitSweeper(bus, shared, clock)
        # Everything that a drain does to its end before its jobs, in this order
        self._passes: list[Sweeper] = [
            reaper,
            Expirer(bus, shared, worker, clock),
            self.lane_sweeper,
            self.wait_sweeper,
            scheduler,
            *(PlainSweeper(bus, shared, clock, sweep) for sweep in SWEEPS),
        ]
        self._sweepers = [*self._passes, PlainSweeper(bus, shared, clock, LIMITS)]
        self.asker = Asker(bus, shared, clock, reaper, scheduler, self._sweepers)
        self._retention = Retention(bus, shared, database, clock)
        self._alerts = Alerter(bus, shared, database, alert_url, clock)

    def services(self) -> list[Service]:
        return [*self._sweepers, self.asker, self._retention, self._alerts]

    def make_pinger(
        self, parts: Sequence[Service], url: str | None, on_good: Callable[[], None]
    ) -> Pinger:
        """Return the pinger of a worker that stays: it runs beside these parts and watches them."""
        return Pinger(self._bus, self._alerts, parts, url, on_good)

    async def run_before_drain(self, is_over: Callable[[], bool]) -> None:
        """Do everything that is due, alert rules last: they see the effects of the others.

        Retention and alerts do not wait here; their first `tick`, beside the jobs, does that. Once
        `is_over`, the current portion is finished and the rest is left to the next worker. If the
        database refuses one part, that is reported, and the others are done. Raises
        DatabaseUnavailable.
        """
        for upkeeper in self._passes:
            # After days without a worker the rest of the figures is added beside the jobs.
            until = self._clock.monotonic() + FIGURES_S if upkeeper.name == FIGURES.name else inf
            try:
                pause_s: float | None = 0
                while pause_s == 0 and not is_over():
                    pause_s = await upkeeper.tick()
                    if self._clock.monotonic() >= until:
                        break
                upkeeper.is_done = pause_s is None
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                upkeeper.handle_outage(error, 0)
        if not is_over():
            await begin_early((self._retention, self._alerts), self._database)


async def begin_early(parts: Iterable[Retention | Alerter], database: Database) -> None:
    """Let the parts do what needs no waiting. Their first `tick`, beside jobs, does the rest."""
    link = StoreLink(database, "before drain", statement_timeout_s=EACH_S, lock_timeout_s=LOCK_S)
    try:
        for part in parts:
            with suppress(TimeoutError, DatabaseUnavailable):
                async with asyncio.timeout(EACH_S):
                    await part.begin(link)
    finally:
        await link.close()
