"""Hears notifications. A hint only: where there is none, polling picks everything up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.runtime.service import Service
from rota.store.listen import notifications

if TYPE_CHECKING:
    from rota.store.link import StoreLink
    from rota.store.statements import Statements
    from rota.worker.parts import Parts

WAKE_UPS_A_SECOND_MAX = 250
"""With more of them, each costs more than it saves."""


class Listener(Service):
    """Passes wake-ups on to the claimer, and those that name this worker, one of whose jobs was
    cancelled, to the lease keeper."""

    name = "listener"

    def __init__(self, parts: Parts, link: StoreLink, statements: Statements) -> None:
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._of_queues = statements.channel
        self._of_workers = statements.worker_channel
        self._second = 0
        self._wake_ups = 0

    async def tick(self) -> float | None:
        """Listen until the connection breaks; `run` then comes back with growing pauses."""
        is_listening = False
        async for heard in notifications(self._link, self._of_queues, self._of_workers):
            if heard is None:
                self.note_answer()
                if not is_listening:
                    is_listening = True
                    # What was said before, this worker did not hear.
                    self._parts.lease_keeper.look_for_cancels()
            elif heard[0] == self._of_queues:
                self._wake_claimer(heard[1])
            elif heard[1] == self._parts.spec.name:
                self._parts.lease_keeper.look_for_cancels()
        return 1.0

    def _wake_claimer(self, queue: str) -> None:
        second = int(self.clock.monotonic())
        if second != self._second:
            self._second, self._wake_ups = second, 0
        self._wake_ups += 1
        if self._wake_ups == WAKE_UPS_A_SECOND_MAX:
            self._parts.claimer.on_flood()
        self._parts.claimer.wake_for(queue)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
