"""Hears the bell. A hint only: with it off, or while it is deaf, polling picks everything up."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.runtime.service import Service
from rota.store.listen import notifications

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.observe.events import Bus
    from rota.store.link import StoreLink
    from rota.store.statements import Statements

RINGS_A_SECOND_MAX = 250
"""Above it, each ring costs more than it saves."""


class Listener(Service):
    """Passes rings on to the claimer, and calls for this worker, one of whose jobs was cancelled, to the lease keeper."""

    name = "listener"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        statements: Statements,
        worker: str,
        *,
        on_ring: Callable[[str], None],
        on_storm: Callable[[], None],
        on_call: Callable[[], None],
    ) -> None:
        super().__init__(bus)
        self._link = link
        self._bell = statements.channel
        self._calls = statements.worker_channel
        self._worker = worker
        self._on_ring = on_ring
        self._on_storm = on_storm
        self._on_call = on_call
        self._second = 0
        self._rings = 0

    async def tick(self) -> float | None:
        """Listen until the connection breaks; `run` then comes back with growing pauses."""
        is_listening = False
        async for heard in notifications(self._link, self._bell, self._calls):
            if heard is None:
                self.recovered()
                if not is_listening:
                    is_listening = True
                    self._on_call()  # what was called before, nobody heard
            elif heard[0] == self._bell:
                self._ring(heard[1])
            elif heard[1] == self._worker:
                self._on_call()
        return 1.0

    def _ring(self, queue: str) -> None:
        second = int(monotonic())
        if second != self._second:
            self._second, self._rings = second, 0
        self._rings += 1
        if self._rings == RINGS_A_SECOND_MAX:
            self._on_storm()
        self._on_ring(queue)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
