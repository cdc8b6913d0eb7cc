"""An event loop of one's own, for those who have none: started for one piece of work, and left in bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rota.errors import UsageError

T = TypeVar("T")
logger = logging.getLogger("rota")

COLLECT_AFTER = (20_000, 20, 50)
"""The collector's thresholds while a loop of our own runs: measured in docs/benchmarks.md."""
LEFT_BEHIND_S = 1.0
"""How long tasks that handlers left behind may take to stop when the loop ends."""


def run_alone(verb: str, work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]]) -> T:
    """Run `work` in a loop of its own, then `close`. Raises UsageError inside a running loop; `verb` is what was called there."""
    if _in_running_loop():
        work.close()
        raise UsageError(f"{verb}() was called inside a running event loop: await a{verb}() instead")
    runner = asyncio.Runner(loop_factory=_loop_factory())
    left: list[str] = []
    try:
        with _rare_collections():
            return runner.run(_then_close(work, close, left))
    finally:
        if left:  # closing the runner would wait for them for ever
            logger.error("handlers that do not stop were left behind: %s", ", ".join(left))
        else:
            runner.close()


async def _then_close(work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]], left: list[str]) -> T:
    try:
        return await work
    finally:
        await close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=LEFT_BEHIND_S)
            left += [task.get_name() for task in stubborn]


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often: thousands of jobs are alive for a moment, and it would walk over all of them again and again."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _in_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - it does not run everywhere
    except ImportError:
        return None
    return uvloop.new_event_loop
