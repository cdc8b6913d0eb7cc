"""An event loop whose time is virtual: nothing sleeps, the loop jumps to its next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from contextvars import Context, ContextVar
from heapq import heappush
from itertools import count
from math import inf, nextafter
from typing import Any

from rota.runtime.clock import Clock


class Process:
    """A simulated process: what runs in its context stops when it is frozen or dead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.release = "r1"
        self.is_dead = False
        self.frozen_until = 0.0
        self.speed = 1.0
        """Of its monotonic clock, in seconds per second."""
        self.stood_s = 0.0
        """How long that clock stood still, as that of a machine does which is moved."""

    def __repr__(self) -> str:
        return self.name

    @property
    def is_sql(self) -> bool:
        """Whether it has no worker of Python's."""
        return self.name.startswith("sql")


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class NothingToDo(Exception):
    """Everything waits for what will never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. A callback of a frozen process runs when it thaws, one of a dead one never."""

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.now = 0.0
        self._scheduled: list[asyncio.TimerHandle]
        self._ready: deque[asyncio.Handle]
        self.set_task_factory(lambda loop, made, **more: _Task(made, loop=loop, **more))

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread


_numbers = count()


class _Task(asyncio.Task[Any]):
    """A task that has the same place in a set in each run."""

    def __hash__(self) -> int:
        if not hasattr(self, "_number"):
            self._number = next(_numbers)
        return self._number


class _Future(asyncio.Future[Any]):
    """A future that has the same place in a set in each run."""

    __hash__ = _Task.__hash__


class _Soon(asyncio.Handle):
    """A callback, perhaps of a process."""

    _context: Context
    _loop: VirtualLoop
    _cancelled: bool

    def _run(self) -> None:
        process = self._context.get(PROCESS)
        if process is None or (not process.is_dead and process.frozen_until <= self._loop.now):
            super()._run()
        elif not process.is_dead:
            self._loop.call_at(process.frozen_until, self._thaw, context=Context())

    def _thaw(self) -> None:
        if not self._cancelled:
            self._run()


class _Timer(_Soon, asyncio.TimerHandle):
    """A callback for later. Of two at the same time the first one stays first."""

    def __init__(self, when: float, *given: Any) -> None:
        super().__init__(when, *given)
        self._key = (when, next(_numbers))

    def __lt__(self, other: Any) -> bool:
        return self._key < other._key  # type: ignore[no-any-return]


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingToDo
        if timeout > 0:  # not a rounding short of the timer: a frozen process would never thaw
            self._loop.now = nextafter(self._loop.now + timeout, inf)
        return []


class WorkerClock(Clock):
    """The clock of a process, which may run fast."""

    def __init__(self, loop: VirtualLoop, process: Process) -> None:
        super().__init__(lambda: loop.now * process.speed - process.stood_s)
        self._process = process

    async def wait(self, *events: asyncio.Event, timeout_s: float | None = None) -> bool:
        # A rounding's time would pass without an end.
        limit_s = None if timeout_s is None else max(timeout_s / self._process.speed, 1e-6)
        return await super().wait(*events, timeout_s=limit_s)


class OneThread:
    """In place of a `LoopThread`: its coroutines run on the one loop."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.get_running_loop()

    async def run(self, coroutine: Any) -> None:
        await coroutine

    def stop(self) -> None:
        """Nothing is to be ended."""
