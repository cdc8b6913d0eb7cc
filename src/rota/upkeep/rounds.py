"""All of upkeep: what every worker does of it beside its jobs, and the one round that a drain does before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.store.link import Link
from rota.upkeep.expiry import Expirer
from rota.upkeep.figures import FigureFolder
from rota.upkeep.reaper import Reaper
from rota.upkeep.retention import Retention
from rota.upkeep.scheduler import Scheduler

if TYPE_CHECKING:
    from rota.events import Bus
    from rota.service import Service
    from rota.store.db import Database
    from rota.upkeep.alerts import Alerts


def services(bus: Bus, database: Database, shared: Link, worker: str, alerts: Alerts) -> list[Service]:
    """What a worker runs. The reaper has a connection of its own, for it must know when that was away."""
    return [
        Reaper(bus, Link(database, "reap")),
        Expirer(bus, shared, worker),
        Scheduler(bus, shared),
        FigureFolder(bus, shared),
        Retention(bus, shared, database),
        alerts,
    ]


async def one_round(bus: Bus, shared: Link, worker: str) -> None:
    """Do all that is due of what may make jobs due, or end them. Retention and alerts are not in it: they may have to
    wait, and go on beside the jobs.

    Raises:
        DatabaseUnavailable: the database did not answer. Where it refused one part, that is told, and the others are done all the same.
    """
    folder = FigureFolder(bus, shared)  # one turn of it: what is left after days without a worker is added beside the jobs
    upkeepers: list[Service] = [
        Reaper(bus, shared),
        Expirer(bus, shared, worker),
        Scheduler(bus, shared),
        folder,
    ]
    for upkeeper in upkeepers:
        try:
            while await upkeeper.tick() == 0 and upkeeper is not folder:
                pass
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            upkeeper.away(error, 0)
