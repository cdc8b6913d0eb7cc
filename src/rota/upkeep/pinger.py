"""Pings an outside monitor while all is well: a dead process can raise no alert."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.observe.events import Bus
from rota.runtime.http import aping
from rota.runtime.service import Service
from rota.upkeep.alerts import Alerter

SOON_S = 1.0
"""Seconds between checks whether there was another good pass."""


class Pinger(Service):
    """Pings each minute after a good pass, while the database answers all parts of the worker."""

    name = "pinger"

    def __init__(
        self,
        bus: Bus,
        alerts: Alerter,
        parts: Sequence[Service],
        url: str | None,
        on_good: Callable[[], None],
    ) -> None:
        super().__init__(bus)
        self._alerts = alerts
        self._parts = parts
        self._url = url
        self._on_good = on_good
        self._passes = 0

    async def tick(self) -> float | None:
        if self._alerts.passes == self._passes:
            return SOON_S
        if any(part.away_since is not None for part in self._parts):
            return SOON_S
        self._passes = self._alerts.passes
        self._on_good()
        if self._url is not None:
            await aping(self._url)
        return SOON_S
