"""A part of maintenance that turns when the database says that there is something for it."""

from __future__ import annotations

from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store.link import StoreLink
from rota.upkeep.read_window import ReadWindow


class Sweeper(Service):
    """Turns once at its start, then when the asker wakes it, and as often as it has more to do. It
    pauses for None when nothing is left."""

    asked_every_s = 10.0
    """Seconds between two questions whether there is something for it."""

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, clock)
        self._link = link
        self.reading = ReadWindow(clock)
        """From where on it reads its index, if it does."""
        self.asked_at = clock.monotonic()
        """When it was asked for last, in monotonic seconds."""
        self.is_done = False
        """Whether nothing was left before it began to run."""
        self.is_due = False
        """Whether the database has said that there is something for it since its last turn."""
        self.is_at_rest = False
        """Whether another worker is asked for it: then this sweeper does not turn by itself."""

    async def run(self) -> None:
        """Turn until stopped. Work that a drain has done waits until it is asked for."""
        if self.is_done:
            await self._pause(None, self._awake)
        await super().run()

    def note_answer(self) -> None:
        """Note that a turn has done what it could."""
        self.is_due = False
        super().note_answer()

    def find_pause_s(self, pause_s: float) -> float | None:
        """Return the pause until the next turn that nothing wakes."""
        return None if self.is_at_rest else pause_s
