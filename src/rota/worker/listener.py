"""Receives notifications. They are a hint only: without them, polling picks every job up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rota.runtime.service import Service
from rota.store.listen import notifications

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.runtime.clock import Clock
    from rota.store.link import StoreLink
    from rota.store.statements import Statements

WAKE_UPS_A_SECOND_MAX = 250
"""With more of them a second, each costs more than it saves."""


class Wakes(Protocol):
    """Claims what a producer has told of: the claimer."""

    def wake_for(self, queue: str) -> None: ...
    def on_flood(self) -> None: ...


class ChecksCancels(Protocol):
    """Asks which jobs were cancelled: the lease keeper."""

    def check_cancels(self) -> None: ...


class Listener(Service):
    """Passes wake-ups for a queue on to the claimer. Passes those that name this worker, because
    one of its jobs was cancelled, on to the lease keeper."""

    name = "listener"

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        statements: Statements,
        worker: str,
        claimer: Wakes,
        lease_keeper: ChecksCancels,
    ) -> None:
        super().__init__(bus, clock)
        self._link = link
        self._worker = worker
        self._claimer = claimer
        self._lease_keeper = lease_keeper
        self._of_queues = statements.channel
        self._of_workers = statements.worker_channel
        self._second = 0
        self._wake_ups = 0

    async def tick(self) -> float | None:
        """Listen until the connection breaks; `run` then tries again with growing pauses."""
        is_listening = False
        async for notification in notifications(self._link, self._of_queues, self._of_workers):
            if notification is None:
                self.note_answer()
                if not is_listening:
                    is_listening = True
                    # Earlier notifications are lost.
                    self._lease_keeper.check_cancels()
            elif notification[0] == self._of_queues:
                self._wake_claimer(notification[1])
            elif notification[1] == self._worker:
                self._lease_keeper.check_cancels()
        return 1.0

    def _wake_claimer(self, queue: str) -> None:
        second = int(self.clock.monotonic())
        if second != self._second:
            self._second, self._wake_ups = second, 0
        self._wake_ups += 1
        if self._wake_ups == WAKE_UPS_A_SECOND_MAX:
            self._claimer.on_flood()
        self._claimer.wake_for(queue)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
