"""All of upkeep: what every worker does of it beside its jobs, and the one round that a drain does before them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from rota.errors import DatabaseUnavailable
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store.link import StoreLink
from rota.upkeep.alerts import Alerter
from rota.upkeep.expirer import Expirer
from rota.upkeep.reaper import Reaper
from rota.upkeep.retention import Retention
from rota.upkeep.rollup import StatsRollup
from rota.upkeep.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.observe.events import Bus
    from rota.runtime.service import Service
    from rota.store.db import Database

EACH_S = 1.0
"""The longest that each part of upkeep may take before the jobs of a drain."""
LOCK_S = 0.1
"""The longest that it waits for a lock: nobody who is not in the way for long holds one for longer."""


class UpkeepSet:
    """The upkeep of one worker."""

    def __init__(
        self,
        bus: Bus,
        database: Database,
        shared: StoreLink,
        worker: str,
        alert_url: str | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._bus = bus
        self._database = database
        self._shared = shared
        self._worker = worker
        self._clock = clock
        self._retention = Retention(bus, shared, database, clock)
        self.alerts = Alerter(bus, database, alert_url, clock)

    def services(self) -> list[Service]:
        """What a worker runs. The reaper has a connection of its own, for it must know when that was away."""
        return [
            Reaper(self._bus, StoreLink(self._database, "reap"), self._clock),
            Expirer(self._bus, self._shared, self._worker, self._clock),
            Scheduler(self._bus, self._shared, self._clock),
            StatsRollup(self._bus, self._shared, self._clock),
            self._retention,
            self.alerts,
        ]

    async def one_round(self, is_over: Callable[[], bool]) -> None:
        """Do all that is due, the rules of alerts last: they tell of what the others left. Retention and alerts wait for nobody here; what they would
        have to wait for is their first turn's, beside the jobs. Once `is_over`, what is left is left to whoever comes next, after the batch under way.

        Raises:
            DatabaseUnavailable: the database did not answer. Where it refused one part, that is told, and the others are done all the same.
        """
        # One turn of it: what is left after days without a worker is added beside the jobs.
        rollup = StatsRollup(self._bus, self._shared, self._clock)
        upkeepers: list[Service] = [
            Reaper(self._bus, self._shared, self._clock),
            Expirer(self._bus, self._shared, self._worker, self._clock),
            Scheduler(self._bus, self._shared, self._clock),
            rollup,
        ]
        for upkeeper in upkeepers:
            try:
                while not is_over() and await upkeeper.tick() == 0 and upkeeper is not rollup:
                    pass
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                upkeeper.handle_outage(error, 0)
        if not is_over():
            await run_before_drain((self._retention, self.alerts), self._database)


class EarlyPart(Protocol):
    """A service that can do a part of its work before the jobs of a drain."""

    async def begin(self, link: StoreLink) -> None:
        """Do it, over this connection."""


async def run_before_drain(parts: Iterable[EarlyPart], database: Database) -> None:
    """Let the parts do what needs no waiting, one after the other. What is left, or is the matter, their first turns beside the jobs see to and tell."""
    link = StoreLink(database, "before drain", statement_timeout_s=EACH_S, lock_timeout_s=LOCK_S)
    try:
        for part in parts:
            with suppress(TimeoutError, DatabaseUnavailable):
                async with asyncio.timeout(EACH_S):
                    await part.begin(link)
    finally:
        await link.close()
