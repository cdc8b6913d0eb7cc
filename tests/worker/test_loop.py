"""The loop of `App.run` and `App.drain`: what would end it, and what does not."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

import rota
from rota.runtime.loop import run_alone
from tests.support.rules import rule
from tests.worker.table import Connection, put, rows

Sub = Callable[[], Coroutine[Any, Any, None]]
FIXED = rota.Fixed("1h", jitter=0)


async def _gather(sub: Sub) -> None:
    await asyncio.gather(sub())


async def _group(sub: Sub) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(sub())


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_of_either_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setattr("rota.runtime.loop._loop_factory", lambda: None)


@pytest.fixture
def signals_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Hanging:
    """A call in a thread that an async handler made and waits for no more; it ends when it may."""

    def __init__(self) -> None:
        self.has_ended = False
        self._may_end = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def begin(self) -> None:
        self._loop, begun = asyncio.get_running_loop(), asyncio.Event()
        call = self._loop.run_in_executor(
            None, self._hang, partial(self._loop.call_soon_threadsafe, begun.set)
        )
        await begun.wait()
        call.cancel()

    def end(self) -> None:
        """Its executor has been shut down."""
        self._may_end.set()
        if self._thread is not None and self._loop is not None:
            self._thread.join(30)
            # A loop stays open if a call goes on. Python would warn of it in some later test.
            self._loop.close()

    def _hang(self, begun: Callable[[], object]) -> None:
        self._thread = threading.current_thread()
        begun()
        self._may_end.wait(10)
        self.has_ended = True


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.end()


async def _nothing() -> None: ...


@rule("M2", "M43")
@pytest.mark.parametrize("how", [_gather, _group])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_task_of_a_handler_s_own_fails_its_attempt_and_ends_the_worker_in_order(
    database: str,
    connection: Connection,
    loop_of_either_kind: None,
    signals_as_they_were: None,
    how: Callable[..., Awaitable[None]],
    error: type[BaseException],
) -> None:
    app = rota.App(database)

    @app.job("exits", retry=FIXED)
    async def exits() -> None:
        async def sub() -> None:
            raise error(3)

        await how(sub)

    @app.job("beside")
    async def beside() -> None:
        await asyncio.Event().wait()

    put(connection, "beside")
    put(connection, "exits")
    with pytest.raises(error):
        app.drain(grace="1ms")
    assert rows(connection, "select job_type, status from rota.job order by 1") == [
        ("beside", "queued"),
        ("exits", "failed"),
    ]
    assert rows(connection, "select error_type from rota.attempt") == [(error.__name__,)]


def test_what_the_process_has_frozen_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    run_alone("run", _nothing(), _nothing)
    assert gc.get_freeze_count() > before / 2


@rule("M2", "M35")
def test_a_call_in_a_thread_that_does_not_end_is_left_behind(
    loop_of_either_kind: None, hanging: Hanging
) -> None:
    run_alone("run", hanging.begin(), _nothing)
    assert not hanging.has_ended, "it was waited for"


@rule("M2", "M35")
def test_a_task_that_does_not_end_is_left_behind_and_named(
    loop_of_either_kind: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rota.runtime.loop.LEFT_BEHIND_S", 0.01)
    may_end = threading.Event()

    async def go_on(begun: asyncio.Event) -> None:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def work() -> set[asyncio.Task[None]]:
        begun = asyncio.Event()
        task = asyncio.create_task(go_on(begun), name="stubborn")
        await begun.wait()
        return {task}

    [task] = run_alone("run", work(), _nothing)
    assert not task.done()
    assert "handlers that do not stop were left behind: stubborn" in caplog.text
    may_end.set()
    task.cancel()
    loop = task.get_loop()  # it is left open
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


@rule("M2", "M35")
def test_nor_does_one_in_an_executor_that_the_application_has_set_keep_the_loop(
    loop_of_either_kind: None, hanging: Hanging
) -> None:
    """As a lifespan does for whom the loop's own has too few threads."""
    threads = ThreadPoolExecutor(1)

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(threads)
        await hanging.begin()

    run_alone("run", work(), _nothing)
    threads.shutdown(wait=False)
    assert not hanging.has_ended, "it was waited for"


@rule("M2", "M35")
@pytest.mark.parametrize(
    ("when", "times"),
    [("while it closes", 1), ("while it closes", 2), ("in the moment that is left", 1)],
)
def test_ctrl_c_at_the_end_does_not_make_it_wait_for_a_call_in_a_thread(
    loop_of_either_kind: None,
    signals_as_they_were: None,
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    times: int,
) -> None:
    closes = when == "while it closes"
    monkeypatch.setattr("rota.runtime.loop.LEFT_BEHIND_S", 0.01 if closes else 60.0)

    async def interrupted() -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)

    async def left_behind() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await interrupted()

    async def work() -> set[asyncio.Task[None]]:
        task = asyncio.create_task(_nothing() if closes else left_behind())
        await hanging.begin()
        return {task}

    with pytest.raises(KeyboardInterrupt):
        run_alone("run", work(), interrupted if closes else _nothing)
    assert not hanging.has_ended, "it was waited for"


@rule("M2")
def test_a_task_that_was_left_behind_may_clean_up_in_a_thread(
    loop_of_either_kind: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `aiofiles` closes a file."""
    monkeypatch.setattr("rota.runtime.loop.LEFT_BEHIND_S", 60.0)
    cleaned_up = threading.Event()

    async def leave_behind(begun: asyncio.Event) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(cleaned_up.set)

    async def work() -> set[asyncio.Task[None]]:
        begun = asyncio.Event()
        task = asyncio.create_task(leave_behind(begun))
        await begun.wait()
        return {task}

    run_alone("run", work(), _nothing)
    assert cleaned_up.is_set()


@pytest.mark.parametrize("where", ["in a task", "in a callback", "in the work itself"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_signal_s_handler_raises_ends_the_loop(
    loop_of_either_kind: None, signals_as_they_were: None, number: signal.Signals, where: str
) -> None:
    def leave(code: int, number: int, frame: FrameType | None) -> None:
        sys.exit(code)

    signal.signal(number, partial(leave, 7))
    tidied = []

    async def step() -> None:
        os.kill(os.getpid(), number)
        for _ in range(1000):
            pass  # a signal is heard between two steps of the interpreter

    async def work() -> None:
        try:
            if where == "in a task":
                await asyncio.create_task(step())
            elif where == "in a callback":
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
            else:
                await step()
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        finally:
            tidied.append(True)

    with pytest.raises(SystemExit) as exited:
        run_alone("run", work(), _nothing)
    assert exited.value.code == 7 and tidied == [True]


def test_ctrl_c_cancels_the_work_once_then_interrupts_it(
    loop_of_either_kind: None, signals_as_they_were: None
) -> None:
    seen = []

    async def work(times: int) -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 10)
            except asyncio.CancelledError:
                seen.append("cancelled")
                if times == 1:
                    raise

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            run_alone("run", work(times), _nothing)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert seen[:2] == ["cancelled", "cancelled"]


def test_ctrl_c_ends_a_program_that_drains(database: str, connection: Connection) -> None:
    program = f"""
import asyncio, os, signal, rota
# A shell lets a program that it starts in the background ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
app = rota.App({database!r})
@app.job("hangs", timeout="10m")
async def hangs():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
app.drain(grace="1ms")
"""
    put(connection, "hangs")
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == -signal.SIGINT and "KeyboardInterrupt" in ended.stderr
    assert rows(connection, "select status from rota.job") == [("queued",)]
