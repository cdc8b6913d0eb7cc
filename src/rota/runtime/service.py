"""The loop of start, turn, back-off and stop that every long-lived part shares."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from math import inf
from typing import Any

from rota.errors import DatabaseUnavailable
from rota.model.back_off import BackOff
from rota.observe.events import Bus, DatabaseLost
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.throttle import Throttle

BACK_OFF_S = (0.1, 10.0)
"""The first and the longest pause while the database is away. Jitter spreads the workers."""
CANCEL_S = 0.5
"""Seconds that a cancelled task may take to end before it is cancelled again."""
CLOSED_S = 1.0
LOG_S = 10.0
"""Seconds between two log lines with the same reason, as an outage may last for an hour."""


class PauseGate:
    """Whether services that change jobs may turn: closed while the database is a restored copy that
    no person has released. Threads may read it."""

    closed: str | None = None
    """Why it is closed; None: open."""


class Service(ABC):
    """A long-lived loop. `tick` does one turn and says how long to pause; `wake` ends the pause.

    All methods are called on the loop that `run` runs on. Other threads may read `away_since` and
    `refusal`.
    """

    name: str
    pause_gate: PauseGate | None = None
    """The service turns only while this gate is open."""

    def __init__(self, bus: Bus, clock: Clock = SYSTEM_CLOCK) -> None:
        self.bus = bus
        self.clock = clock
        self.back_off = BackOff(*BACK_OFF_S)
        self.away_since: float | None = None
        """Since when, in monotonic seconds, the database has not answered this loop."""
        self.refusal: str | None = None
        """Why its last turn failed; None: it did not. The worker's row shows it, if possible."""
        self._awake = asyncio.Event()
        self._awake_now = asyncio.Event()
        self._turn_at = inf
        """When the pause ends at the latest, in monotonic seconds."""
        self._is_moved = False
        """Whether `_turn_at` was moved, and nothing else has ended the pause."""
        self._throttle = Throttle(clock, LOG_S)
        self._is_stopping = False

    @abstractmethod
    async def tick(self) -> float | None:
        """Do one turn; return the seconds to pause; None: pause until woken."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the loop used, after its last turn."""

    def wake(self) -> None:
        self._is_moved = False
        self._awake.set()

    def wake_in(self, pause_s: float) -> None:
        self._turn_at = min(self._turn_at, self.clock.monotonic() + pause_s)
        if not self._awake.is_set():
            self._is_moved = True
            self._awake.set()

    def wake_now(self) -> None:
        """End the pause, even the pause of an outage."""
        self.back_off.tries = 0
        self._is_moved = False
        self._awake.set()
        self._awake_now.set()

    def stop(self) -> None:
        self._is_stopping = True
        self.wake_now()

    async def run(self) -> None:
        """Turn until stopped. While the database is away, wait with growing pauses."""
        try:
            while not self._is_stopping:
                self._awake.clear()
                self._awake_now.clear()
                self._turn_at = inf
                await self._pause(*await self._turn())
        finally:
            await self.close()

    def note_answer(self) -> None:
        """Note that the database answers. Called after every turn; a long turn calls it itself."""
        self.refusal = None
        if self.away_since is not None:
            self.back_off.tries = 0
            self.away_since = None

    def handle_outage(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        """Report that the database did not answer; return the seconds until the next turn."""
        pause_s = back_off_s * random.uniform(0.75, 1.25)
        self.refusal = str(error)
        self.report_lost(str(error), pause_s, refused=error.refused)
        return pause_s

    def report_lost(self, reason: str, retry_in_s: float, *, refused: bool = False) -> None:
        """Report that the database was lost or refused; the same reason at most every LOG_S."""
        if self._throttle.allows(reason):
            self.bus.emit(
                DatabaseLost(
                    service=self.name, reason=reason, retry_in_s=retry_in_s, refused=refused
                )
            )

    async def _turn(self) -> tuple[float | None, asyncio.Event]:
        """Turn once; return the pause, and what ends it early."""
        if self.pause_gate is not None and self.pause_gate.closed is not None:
            return CLOSED_S, self._awake_now
        try:
            pause_s = await self.tick()
        except DatabaseUnavailable as error:
            self.away_since = self.away_since or self.clock.monotonic()
            # Not `_awake`: a job that ends or a wake-up does not bring the database back.
            return self.handle_outage(error, self.back_off.next_s()), self._awake_now
        self.note_answer()
        return pause_s, self._awake

    async def _pause(self, pause_s: float | None, ended_by: asyncio.Event) -> None:
        if self._is_stopping or pause_s == 0:
            await asyncio.sleep(0)
            return
        if ended_by is not self._awake:
            await self.clock.wait(ended_by, timeout_s=pause_s)
            return
        if pause_s is not None:
            self._turn_at = min(self._turn_at, self.clock.monotonic() + pause_s)
        while (left_s := self._turn_at - self.clock.monotonic()) > 0:
            timeout_s = None if left_s == inf else left_s
            if await self.clock.wait(ended_by, timeout_s=timeout_s):
                if not self._is_moved:
                    return
                self._is_moved = False
                ended_by.clear()


class LoopThread:
    """A thread with its own event loop, which runs while a handler blocks the worker's loop."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(cancel(asyncio.all_tasks(self.loop)))
        self.loop.close()

    async def run(self, coroutine: Coroutine[object, object, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, a second at most. Each is cancelled twice: at first
    psycopg asks the server to give up the query, and waits up to ten seconds for that."""
    left = {task for task in tasks if not task.done()}
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=CANCEL_S)
