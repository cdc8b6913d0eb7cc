"""The time that services measure and wait for: a parameter, so that a test can move it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Clock:
    """Monotonic seconds of this machine. The database decides what is due by its own clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        """Seconds since an arbitrary moment. From any thread."""

    async def wait(self, *events: asyncio.Event, timeout_s: float | None = None) -> bool:
        """Wait until an event is set, at most `timeout_s`; return whether that happened."""
        try:
            async with asyncio.timeout(timeout_s):
                await _wait_for_any(events)
        except TimeoutError:
            return any(event.is_set() for event in events)
        return True


async def _wait_for_any(events: tuple[asyncio.Event, ...]) -> None:
    if len(events) == 1:
        await events[0].wait()
        return
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


SYSTEM_CLOCK = Clock()


STALL = 4
"""A pass that takes more than so many times as long as the pass before was held up."""


def count_usual(took_s: float, last_s: float) -> float:
    """Return how many of a pass's seconds count, if the pass before counted `last_s`: work that
    gets a share of the time must not wait for long because a server stood still once."""
    return min(took_s, STALL * last_s)
