"""An event loop of Rota's own: started for one piece of work and left in bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rota.errors import UsageError

T = TypeVar("T")
logger = logging.getLogger("rota")

COLLECT_AFTER = (20_000, 20, 50)
"""The collector's thresholds while a loop of ours runs."""
LEFT_BEHIND_S = 1.0
"""How long tasks that handlers left behind may take to stop when the loop ends."""


def run_alone(verb: str, work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]]) -> T:
    """Run `work` on a loop of its own, then `close`, which releases what belongs to the loop.

    Ctrl-C cancels the work. So does a SystemExit of a signal handler or of a task of a handler:
    asyncio raises it out of the loop. Raises UsageError if a loop runs in this thread; `verb` is
    the called method, as in `run`.
    """
    if is_in_loop():
        work.close()
        raise UsageError(
            f"{verb}() was called inside a running event loop: await a{verb}() instead"
        )
    with _rare_collections():
        return _run(work, close)


def _run(work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]]) -> T:
    runner = asyncio.Runner(loop_factory=_loop_factory())
    main: asyncio.Task[Any] | None = None
    stuck: list[str] = []

    async def begin() -> T:
        nonlocal main
        main = asyncio.current_task()
        try:
            try:
                return await work
            finally:
                await close()
        finally:
            stuck.extend(await _cancel_remaining())

    try:
        return runner.run(begin())
    except SystemExit as error:
        logger.warning("sys.exit(%s): the work ends in order", error.code, exc_info=error)
        raise
    finally:
        try:
            if main is not None and not main.done():
                main.cancel()
                with suppress(asyncio.CancelledError):
                    runner.get_loop().run_until_complete(main)
        finally:
            if not stuck:  # closing the loop would wait for these tasks for ever
                runner.close()


async def _cancel_remaining() -> list[str]:
    """Cancel the tasks that handlers left behind. Return the names of tasks that do not stop."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=LEFT_BEHIND_S)
    finally:
        # A closing loop waits for the calls in its executor, which no one can stop. Tasks that
        # clean up in a thread need their executor until here.
        loop.set_default_executor(ThreadPoolExecutor())
    names = [task.get_name() for task in tasks if not task.done()]
    if names:
        logger.error("handlers that do not stop were left behind: %s", ", ".join(names))
    return names


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Run the garbage collector less often: it would walk over thousands of short-lived jobs."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def call_in_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Call in a thread of its own, for which neither a loop nor a process waits at its end. Raises
    RuntimeError if the machine cannot start a thread."""
    answer = Future[T]()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - who awaits it gets it
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(answer)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - it does not run everywhere
    except ImportError:
        return None
    return uvloop.new_event_loop
