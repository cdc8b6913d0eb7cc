"""Hears the bell. A hint only: with it off, or while it is deaf, polling picks everything up."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.service import Service
from rota.store.listen import notifications

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.events import Bus
    from rota.store.link import Link

RINGS_A_SECOND_MAX = 250
"""Above it, each ring costs more than it saves."""


class Listener(Service):
    """Passes rings on to the claimer."""

    name = "listener"

    def __init__(self, bus: Bus, link: Link, channel: str, on_ring: Callable[[str], None], on_storm: Callable[[], None]) -> None:
        super().__init__(bus)
        self._link = link
        self._channel = channel
        self._on_ring = on_ring
        self._on_storm = on_storm
        self._second = 0
        self._rings = 0

    async def tick(self) -> float | None:
        """Listen until the connection breaks; `run` then comes back with growing pauses."""
        async for queue in notifications(self._link, self._channel):
            if queue is None:
                self.recovered()
                continue
            second = int(monotonic())
            if second != self._second:
                self._second, self._rings = second, 0
            self._rings += 1
            if self._rings == RINGS_A_SECOND_MAX:
                self._on_storm()
            self._on_ring(queue)
        return 1.0

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
