"""The one start, tick, back-off and stop loop that every actor is."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.observe.events import DatabaseLost

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from rota.observe.events import Bus

BACK_OFF_S = (0.1, 10.0)
"""The first and the longest pause while the database is away; doubled each time, with jitter so that a fleet does not come back at once."""
CALL_OFF_S = 0.5
"""How long a task may take to end when it is cancelled, before it is cancelled again."""
CLOSED_S = 1.0
"""How often is looked whether a closed gate is open."""
TELL_S = 10.0
"""The same trouble is told at most once in so long: a database that is away for an hour does not fill the log."""


class Gate:
    """Whether those that change jobs may: closed while the database is a restored copy that nobody has released. Threads may read it."""

    closed: str | None = None
    """Why; None: open."""


class Service(ABC):
    """A long-lived loop. `tick` does one turn and says how long to pause; `wake` ends the pause early."""

    name: str
    back_off_most_s = BACK_OFF_S[1]
    """The longest pause while the database is away."""
    gate: Gate | None = None
    """It turns only while this is open."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._awake = asyncio.Event()
        self._hurried = asyncio.Event()
        self._told_at: dict[str, float] = {}
        self._stopping = False
        self._back_off_s = BACK_OFF_S[0]
        self.away_since: float | None = None
        """Since when, in monotonic seconds, the database has not answered this loop. Other threads may read it."""

    @abstractmethod
    async def tick(self) -> float | None:
        """Do one turn; return the seconds to pause, None to pause until woken."""

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give up what the loop held, after its last turn."""

    def wake(self) -> None:
        """End the pause. From the service's own loop only."""
        self._awake.set()

    def hurry(self) -> None:
        """End the pause, also that of a database that is away. From the service's own loop only."""
        self._back_off_s = BACK_OFF_S[0]
        self._awake.set()
        self._hurried.set()

    def stop(self) -> None:
        """End the loop after the turn it is in. From the service's own loop only."""
        self._stopping = True
        self.hurry()

    async def run(self) -> None:
        """Turn until stopped. While the database is away, wait with growing pauses and carry on."""
        try:
            while not self._stopping:
                self._awake.clear()
                self._hurried.clear()
                if self.gate is not None and self.gate.closed is not None:
                    await self._pause(CLOSED_S, self._hurried)
                    continue
                try:
                    pause_s = await self.tick()
                    self.recovered()
                    ended_by = self._awake
                except DatabaseUnavailable as error:
                    self.away_since = self.away_since or monotonic()
                    pause_s = self.away(error, min(self._back_off_s, self.back_off_most_s))
                    self._back_off_s = min(self._back_off_s * 2, BACK_OFF_S[1])
                    ended_by = (
                        self._hurried
                    )  # a job that ends or a bell that rings does not bring the database back
                await self._pause(pause_s, ended_by)
        finally:
            await self.close()

    def recovered(self) -> None:
        """The database answers. Said after every turn; a turn that goes on for long says it itself."""
        self._back_off_s = BACK_OFF_S[0]
        self.away_since = None

    def away(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        """The database did not answer; return how long to pause before the next turn."""
        pause_s = back_off_s * random.uniform(0.75, 1.25)
        self._tell_once(DatabaseLost(service=self.name, reason=str(error), retry_in_s=pause_s))
        return pause_s

    def _tell_once(self, lost: DatabaseLost) -> None:
        now = monotonic()
        self._told_at = {reason: at for reason, at in self._told_at.items() if now - at < TELL_S}
        if lost.reason not in self._told_at:
            self._told_at[lost.reason] = now
            self.bus.emit(lost)

    async def _pause(self, pause_s: float | None, ended_by: asyncio.Event) -> None:
        if self._stopping or pause_s == 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(pause_s):
                await ended_by.wait()
        except TimeoutError:
            pass


class LoopThread:
    """A thread with an event loop of its own, for what must go on while a handler blocks the worker's loop."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(cancel_all(asyncio.all_tasks(self.loop)))
        self.loop.close()

    async def run(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine there and wait for it here."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, a second at most. Those that wait for an answer are cancelled twice: at first psycopg asks the server to
    give up the query and waits for up to ten seconds for that."""
    left = {task for task in tasks if not task.done()}
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=CALL_OFF_S)
