"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.runtime.clock import Clock
from tests.support.wait import eventually


class ManualClock(Clock):
    """Waits for it end when `advance` has moved it far enough. From any thread."""

    def __init__(self, now: float = 1_000.0) -> None:
        super().__init__(lambda: self.now)
        self.now = now
        self._timers: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._began = asyncio.Event()
        """Set when a wait begins."""

    def advance(self, seconds: float) -> None:
        """Move it, and end the waits whose time has come."""
        self.now += seconds
        due = [timer for timer in self._timers if timer[0] <= self.now]
        self._timers = [timer for timer in self._timers if timer[0] > self.now]
        for _, loop, event in due:
            loop.call_soon_threadsafe(event.set)

    def advance_until(self, holds: Callable[[], bool], step_s: float) -> None:
        """Advance it step by step until something holds. In a thread: others have to turn."""

        def step() -> bool:
            if not holds():
                self.advance(step_s)
            return holds()

        eventually(step)

    @property
    def waits_s(self) -> list[float]:
        """For how long each wait still goes on, the shortest first."""
        return sorted(at - self.now for at, _, _ in self._timers)

    async def until_waited_for(self, seconds: float) -> None:
        """Return when a wait of this length has begun."""
        async with asyncio.timeout(30):
            while not any(abs(left_s - seconds) < 1e-6 for left_s in self.waits_s):
                self._began.clear()
                await self._began.wait()

    async def wait(self, *events: asyncio.Event, timeout_s: float | None = None) -> bool:
        """As on the real clock, but for the time."""
        if timeout_s is None:
            return await super().wait(*events)
        timer = asyncio.Event()
        entry = (self.now + timeout_s, asyncio.get_running_loop(), timer)
        if timeout_s > 0:
            self._timers.append(entry)
            self._began.set()
        else:
            timer.set()
        try:
            await super().wait(*events, timer)
        finally:
            if entry in self._timers:
                self._timers.remove(entry)
        return any(event.is_set() for event in events)
