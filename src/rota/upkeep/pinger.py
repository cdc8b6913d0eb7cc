"""Tells somebody outside that all is well: an alert that is raised by what died is no alert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.http import aping
from rota.runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.observe.events import Bus
    from rota.upkeep.alerts import Alerter

SOON_S = 1.0
"""How often is looked whether there is another good pass."""


class Pinger(Service):
    """About once a minute, when upkeep has done another pass and the database answers every part of the worker, says so."""

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
        """Ping if there is reason to."""
        if self._alerts.passes == self._passes:
            return SOON_S
        if any(part.away_since is not None for part in self._parts):
            return SOON_S
        self._passes = self._alerts.passes
        self._on_good()
        if self._url is not None:
            await aping(self._url)
        return SOON_S
