"""Notices when a handler keeps the worker's event loop from turning, and says which."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING

from rota.declare.context import current
from rota.observe.events import LoopBlocked
from rota.runtime.service import Service

if TYPE_CHECKING:
    from types import FrameType

    from rota.observe.events import Bus
    from rota.worker.held import Held, HeldJobs

BLOCKED_S = 1.0
"""A loop that has not turned for so long is called blocked: the bell, other handlers and their timeouts have waited for as long."""
LOOK_S = 0.25


class LoopWatch(Service):
    """Pings the worker's loop from the lease keeper's thread. Made on the worker's loop, run on the other."""

    name = "loop watch"

    def __init__(self, bus: Bus, held: HeldJobs) -> None:
        super().__init__(bus)
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._before = weakref.WeakSet(asyncio.all_tasks())
        """Tasks of the application, and the worker's own: no handler began them."""
        self._pinged_at: float | None = None
        self._told: LoopBlocked | None = None

    @property
    def blocked_s(self) -> float:
        """For how long the loop has not turned; a healthy one is about at 0."""
        pinged_at = self._pinged_at
        return 0.0 if pinged_at is None else monotonic() - pinged_at

    async def tick(self) -> float | None:
        """Ping, or see for how long the last ping has been waiting."""
        if self._pinged_at is None:
            self._pinged_at = monotonic()
            self._loop.call_soon_threadsafe(self._turned)
        elif self._told is None and self.blocked_s >= BLOCKED_S:
            self._told = self._blocked()
            self.bus.emit(self._told)
        return LOOK_S

    def _turned(self) -> None:
        """Runs on the worker's loop."""
        blocked_s, self._pinged_at = self.blocked_s, None
        told, self._told = self._told, None
        if told is not None:
            self.bus.emit(
                LoopBlocked(
                    job=told.job,
                    job_type=told.job_type,
                    blocked_s=blocked_s,
                    place=told.place,
                    over=True,
                )
            )

    def _culprit(self) -> Held | None:
        """Whose handler keeps the loop: the one of the task that runs, or the one that began that task, which inherits its context."""
        task = asyncio.current_task(self._loop)
        running = [
            one for one in list(self._held.values()) if one.task is not None and one.end is None
        ]
        if task is None or task in self._before:
            return None
        own = next((one for one in running if one.task is task), None)
        if own is not None:
            return own
        if hasattr(task, "get_context"):  # which Python has since 3.12
            context = current(task.get_context())
            return (
                next((one for one in running if one.context is context), None)
                if context is not None
                else None
            )
        return (
            running[0] if len(running) == 1 and task.get_name().startswith("Task-") else None
        )  # ours have names

    def _blocked(self) -> LoopBlocked:
        held = self._culprit()
        place = _place(sys._current_frames().get(self._thread), held)
        job, job_type = (held.job.id, held.job.job_type) if held is not None else (None, None)
        return LoopBlocked(
            job=job, job_type=job_type, blocked_s=self.blocked_s, place=place, over=False
        )


def _place(frame: FrameType | None, held: Held | None) -> str:
    """Where the loop's thread is: the innermost line of the handler's own file, else the innermost line."""
    own = (
        getattr(inspect.unwrap(held.job_type.func), "__code__", None) if held is not None else None
    )
    innermost = frame
    while frame is not None and own is not None and frame.f_code.co_filename != own.co_filename:
        frame = frame.f_back
    chosen = frame if frame is not None and own is not None else innermost
    return (
        "an unknown place"
        if chosen is None
        else f"{chosen.f_code.co_filename}:{chosen.f_lineno} in {chosen.f_code.co_name}"
    )
