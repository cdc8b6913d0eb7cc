"""Tells of due jobs whose type no worker knows, most often because nobody imports its module."""

from __future__ import annotations

from rota.observe.events import Bus, TypeUnknown
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink

PERIOD_S = 30.0
"""Seconds between two looks, and longer where a look takes long."""
SHARE = 0.01
"""Share of one connection's time for the looks: they read an index that churns."""


class TypeWatch(Service):
    """Looks at the due jobs of this worker's queues, at its start and then now and then. It tells
    of a type once, and again only if meanwhile a look did not find the type."""

    name = "type watch"

    def __init__(
        self, bus: Bus, clock: Clock, link: StoreLink, queues: list[str], module: str | None
    ) -> None:
        super().__init__(bus, clock)
        self._link = link
        self._queues = queues
        self._app = "its App" if module is None else f"the App of module {module}"
        self._told: set[str] = set()

    async def tick(self) -> float | None:
        before = self.clock.monotonic()
        found = await self._link.run(ops.find_unknown_types(self._queues))
        for job_type in found.keys() - self._told:
            told = TypeUnknown(job_type=job_type, jobs=found[job_type], app=self._app)
            self.bus.emit(told)
        self._told = set(found)
        return max(PERIOD_S, (self.clock.monotonic() - before) / SHARE)
