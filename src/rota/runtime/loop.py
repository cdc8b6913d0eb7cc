"""An event loop of one's own, for those who have none: started for one piece of work, and left in bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from rota.errors import UsageError
from rota.model.resources import told

T = TypeVar("T")
logger = logging.getLogger("rota")

COLLECT_AFTER = (20_000, 20, 50)
"""The collector's thresholds while a loop of our own runs: measured in docs/benchmarks.md."""
LEFT_BEHIND_S = 1.0
"""How long tasks and calls in threads that handlers left behind may take to stop when the loop ends."""


def run_alone(verb: str, work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]]) -> T:
    """Run `work` in a loop of its own, then `close`. Raises UsageError inside a running loop; `verb` is what was called there."""
    if _in_running_loop():
        work.close()
        raise UsageError(
            f"{verb}() was called inside a running event loop: await a{verb}() instead"
        )
    with told(), closing(work):  # which has not begun where there is no loop for it
        keep_standard_descriptors()
        return _run_alone(work, close)


def _run_alone(work: Coroutine[Any, Any, T], close: Callable[[], Awaitable[None]]) -> T:
    runner = asyncio.Runner(loop_factory=_loop_factory())
    calls = _Calls()
    left: list[str] = []
    try:
        with _rare_collections():
            loop = runner.get_loop()
            loop.set_default_executor(calls)
            return _run(loop, _then_close(work, close, calls, left))
    finally:
        if not left:  # closing the runner would wait for them for ever
            with suppress(
                RuntimeError
            ):  # one that got no descriptor or thread cannot be closed either; what it came to is known
                runner.close()


class _Calls(ThreadPoolExecutor):
    """The loop's threads, as `asyncio.to_thread` uses them; it knows what runs there."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self.running: set[Future[Any]] = set()

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = super().submit(call, *args, **kwargs)
        self.running.add(future)
        future.add_done_callback(self.running.discard)
        return future


def keep_standard_descriptors() -> None:
    """Open on /dev/null what is closed of 0, 1 and 2. Else a connection takes the number, what is printed goes into it, and libuv aborts the process
    when it closes one of its own."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.Runner.run`, but neither `loop.stop()` nor a SystemExit or KeyboardInterrupt of some other task ends it: asyncio raises it out of
    the loop, where it would end all that runs there, besides handing it to whoever awaits that task. A signal's ends it."""
    task = loop.create_task(work)
    with _cancelled_by_ctrl_c(loop, task) as interrupts:
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done() or _is_from_a_signal(error):
                    raise
            except RuntimeError as error:
                if task.done() or loop.is_closed() or _is_from_a_signal(error):
                    raise
                logger.error("a handler stopped the event loop, which is the worker's: it goes on")  # noqa: TRY400 - where it did nobody knows
            except asyncio.CancelledError:
                if interrupts and task.uncancel() == 0:
                    raise KeyboardInterrupt from None
                raise


@contextmanager
def _cancelled_by_ctrl_c(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]
) -> Iterator[list[int]]:
    """As `asyncio.Runner` has it: the first SIGINT cancels the task, the next interrupts. What the application has installed itself stays."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if len(interrupts) > 1 or task.done():
            raise KeyboardInterrupt
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # it may be waiting

    if not _has_pythons_own_ctrl_c():
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupts
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_from_a_signal(error: BaseException) -> bool:
    """Whether a signal's handler raised it, and no task. Python's own handler of SIGINT leaves no frame."""
    if isinstance(error, KeyboardInterrupt) and _has_pythons_own_ctrl_c():
        return True
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {
        getattr(getattr(handler, "func", handler), "__code__", None) for handler in handlers
    } - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _has_pythons_own_ctrl_c() -> bool:
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


async def _then_close(
    work: Coroutine[Any, Any, T],
    close: Callable[[], Awaitable[None]],
    calls: _Calls,
    left: list[str],
) -> T:
    try:
        try:
            return await work
        finally:
            await close()
    finally:
        left += await _leave_behind(calls)


async def _leave_behind(calls: _Calls) -> list[str]:
    """Cancel what handlers left behind, and give it a moment to end. Return the tasks that go on all the same."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    # What they come to is nobody's any more: an error in one is no line in the log.
    running = asyncio.gather(
        *(asyncio.wrap_future(call) for call in list(calls.running)), return_exceptions=True
    )
    try:
        await asyncio.wait([*tasks, running], timeout=LEFT_BEHIND_S)
    finally:  # Ctrl-C may end the moment
        calls.shutdown(
            wait=False, cancel_futures=True
        )  # not before: tasks that were cancelled may put away in threads what they had
        # The loop waits for its executor when it is closed, as long as that takes: one that the application has set is not to keep it.
        asyncio.get_running_loop().set_default_executor(_Calls())
    left = [task.get_name() for task in tasks if not task.done()]
    threads = [f"calls in threads ({len(calls.running)})"] if calls.running else []
    if left or threads:
        logger.error("handlers that do not stop were left behind: %s", ", ".join(left + threads))
    return left


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
