"""Receives notifications. They are only a hint: without them, polling finds every job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.store.listen import notifications

NOTIFY_S = 45.0
"""Seconds for which producers are asked to wake a waiting worker; each probe asks again."""
WAKE_UPS_A_SECOND_MAX = 250
"""Most wake-ups a second, of all workers: with more, each costs more than it saves."""


class Wakes(Protocol):
    """Claims jobs that a producer has told of: the claimer."""

    workers: int

    def list_awaited(self) -> list[str]: ...
    def take_wake_up(self, queue: str) -> None: ...
    def note_poll(self, poll: str) -> None: ...
    def note_listening(self, *, is_listening: bool, is_awaited: bool) -> None: ...
    def on_flood(self) -> None: ...


class Listener(Service):
    """Tells the claimer of wake-ups and workers' polls, and the lease keeper of cancelled jobs."""

    name = "listener"

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        peer: str,
        queues: Sequence[str],
        claimer: Wakes,
        check_cancels: Callable[[], None],
    ) -> None:
        super().__init__(bus, clock)
        self._link = link
        self._peer = peer
        self._queues = queues
        self._claimer = claimer
        self._check_cancels = check_cancels
        self._of_all = link.statements.channel
        self._own = link.statements.worker_channel(peer.partition(" ")[2])
        self._asks = False
        """Whether producers were just asked for the wake-ups of all its queues."""
        self._second = 0
        self._wake_ups = 0

    async def tick(self) -> float | None:
        """Listen until the connection breaks; `run` then tries again with growing pauses."""
        is_listening = False
        try:
            async for notification in notifications(
                self._link, self._of_all, self._own, probe=self._probe
            ):
                if notification is None:
                    self.note_answer()
                    self._claimer.note_listening(is_listening=True, is_awaited=self._asks)
                    if not is_listening:
                        is_listening = True
                        # Earlier notifications are lost.
                        self._check_cancels()
                elif notification[0] == self._of_all:
                    self._claimer.note_poll(notification[1])
                elif notification[1]:
                    self._wake_claimer(notification[1])
                else:
                    self._check_cancels()
        finally:
            self._claimer.note_listening(is_listening=False, is_awaited=False)
        return 1.0

    def _probe(self) -> Operation[None]:
        """Ask for wake-ups again, over the connection that brings them; a busy worker, for none."""
        queues = self._claimer.list_awaited()
        are_told = yield from ops.request_notify(self._peer, queues, NOTIFY_S)
        self._asks = are_told and len(queues) == len(self._queues)

    def _wake_claimer(self, queue: str) -> None:
        second = int(self.clock.monotonic())
        if second != self._second:
            self._second, self._wake_ups = second, 0
        self._wake_ups += 1
        if self._wake_ups == max(1, WAKE_UPS_A_SECOND_MAX // self._claimer.workers):
            self._claimer.on_flood()
        self._claimer.take_wake_up(queue)

    async def close(self) -> None:
        await self._link.close()
