"""All of upkeep: what every worker does of it beside its jobs, and the one round that a drain does before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.store.link import StoreLink
from rota.upkeep.alerts import Alerts
from rota.upkeep.beforehand import beforehand
from rota.upkeep.expirer import Expirer
from rota.upkeep.reaper import Reaper
from rota.upkeep.retention import Retention
from rota.upkeep.rollup import StatsRollup
from rota.upkeep.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.observe.events import Bus
    from rota.runtime.service import Service
    from rota.store.db import Database


class UpkeepSet:
    """The upkeep of one worker."""

    def __init__(
        self, bus: Bus, database: Database, shared: StoreLink, worker: str, alert_url: str | None
    ) -> None:
        self._bus = bus
        self._database = database
        self._shared = shared
        self._worker = worker
        self._retention = Retention(bus, shared, database)
        self.alerts = Alerts(bus, database, alert_url)

    def services(self) -> list[Service]:
        """What a worker runs. The reaper has a connection of its own, for it must know when that was away."""
        return [
            Reaper(self._bus, StoreLink(self._database, "reap")),
            Expirer(self._bus, self._shared, self._worker),
            Scheduler(self._bus, self._shared),
            StatsRollup(self._bus, self._shared),
            self._retention,
            self.alerts,
        ]

    async def one_round(self, is_over: Callable[[], bool]) -> None:
        """Do all that is due, the rules of alerts last: they tell of what the others left. Retention and alerts wait for nobody here; what they would
        have to wait for is their first turn's, beside the jobs. Once `is_over`, what is left is left to whoever comes next, after the batch under way.

        Raises:
            DatabaseUnavailable: the database did not answer. Where it refused one part, that is told, and the others are done all the same.
        """
        folder = StatsRollup(
            self._bus, self._shared
        )  # one turn of it: what is left after days without a worker is added beside the jobs
        upkeepers: list[Service] = [
            Reaper(self._bus, self._shared),
            Expirer(self._bus, self._shared, self._worker),
            Scheduler(self._bus, self._shared),
            folder,
        ]
        for upkeeper in upkeepers:
            try:
                while not is_over() and await upkeeper.tick() == 0 and upkeeper is not folder:
                    pass
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                upkeeper.away(error, 0)
        if not is_over():
            await beforehand((self._retention, self.alerts), self._database)
