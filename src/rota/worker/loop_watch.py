"""Reports when a handler blocks the worker's event loop, and which."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import weakref
from types import FrameType

from msgspec.structs import replace

from rota.declare.context import find_entered
from rota.observe.events import Bus, LoopBlocked
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.worker.attempt import Attempt

BLOCKED_S = 1.0
"""Seconds after which a loop that has not turned is blocked: wake-ups and other handlers wait."""
CHECK_S = 0.25


class LoopWatch(Service):
    """Pings the worker's loop from the lease keeper's thread. Made on the worker's loop."""

    name = "loop watch"

    def __init__(self, bus: Bus, clock: Clock, attempts: dict[int, Attempt]) -> None:
        super().__init__(bus, clock)
        self._attempts = attempts
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._before = weakref.WeakSet(asyncio.all_tasks())
        """Tasks of the application and of the worker, which no handler began."""
        self._pinged_at: float | None = None
        self._reported: LoopBlocked | None = None
        """The event of the current block; None: the loop is not blocked."""

    @property
    def blocked_s(self) -> float:
        """How long the loop has not turned; about 0 if it is healthy."""
        pinged_at = self._pinged_at
        return 0.0 if pinged_at is None else self.clock.monotonic() - pinged_at

    async def tick(self) -> float | None:
        """Ping, or check how long the last ping has waited."""
        if self._pinged_at is None:
            self._pinged_at = self.clock.monotonic()
            self._loop.call_soon_threadsafe(self._note_turn)
        elif self._reported is None and self.blocked_s >= BLOCKED_S:
            self._reported = self._describe()
            self.bus.emit(self._reported)
        return CHECK_S if self._attempts else BLOCKED_S / 2

    def _note_turn(self) -> None:
        blocked_s, self._pinged_at = self.blocked_s, None
        reported, self._reported = self._reported, None
        if reported is not None:
            self.bus.emit(replace(reported, blocked_s=blocked_s, over=True))

    def _find_culprit(self) -> Attempt | None:
        """Return the attempt whose handler blocks the loop: itself, or a task that it started."""
        task = asyncio.current_task(self._loop)
        if task is None or task in self._before:
            return None
        begun = [
            attempt for attempt in list(self._attempts.values()) if attempt.began_at is not None
        ]
        running = {
            attempt: found
            for attempt in begun
            if not attempt.is_over and (found := attempt.find_task())
        }
        for attempt, found in running.items():
            if found is task:
                return attempt
        if hasattr(task, "get_context"):  # since Python 3.12
            entered = find_entered(task.get_context())
            return next((attempt for attempt in begun if attempt.is_seen_by(entered)), None)
        is_unnamed = task.get_name().startswith("Task-")  # the worker's tasks have names
        return next(iter(running)) if len(set(running.values())) == 1 and is_unnamed else None

    def _describe(self) -> LoopBlocked:
        attempt = self._find_culprit()
        return LoopBlocked(
            job=None if attempt is None else attempt.job.id,
            job_type=None if attempt is None else attempt.job.job_type,
            blocked_s=self.blocked_s,
            place=_find_place(sys._current_frames().get(self._thread), attempt),
            over=False,
        )


def _find_place(frame: FrameType | None, attempt: Attempt | None) -> str:
    """Return where the loop's thread is: the innermost line of the handler's file, else of any."""
    if frame is None:
        return "an unknown place"
    func = None if attempt is None else inspect.unwrap(attempt.job_type.func)
    own = getattr(func, "__code__", None)
    found: FrameType | None = frame
    while found is not None and own is not None and found.f_code.co_filename != own.co_filename:
        found = found.f_back
    found = frame if found is None or own is None else found
    return f"{found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"
