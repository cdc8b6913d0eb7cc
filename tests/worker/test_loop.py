"""The loop of `App.run` and `App.drain`: what would end it, and what does not; who blocks it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import psycopg
import pytest

import rota
from rota.observe.events import JobSucceeded, LeaseLost, LoopBlocked
from rota.runtime.loop import run_alone
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows


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


def watch_for_report(hand: Hand, job_type: str | None) -> threading.Event:
    """Return an event that is set when handlers of this type are reported to block the loop; None:
    when the report names no handler."""
    reported = threading.Event()
    hand.worker._bus.on(
        LoopBlocked, lambda event: reported.set() if event.job_type == job_type else None
    )
    return reported


@rule("M32", "M84")
async def test_a_handler_that_blocks_the_loop_is_named_with_its_place_and_time(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    may_end = asyncio.Event()

    @jobs.job("greedy", lease="6s")
    async def greedy() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            held = "select id, locked_until from rota.job"
            before = set(rows(own, held))
            reported.wait(30)
            eventually(lambda: not before & set(rows(own, held)), what="both leases are renewed")
        may_end.set()

    @jobs.job("patient", lease="6s")
    async def patient() -> None:
        await may_end.wait()

    async with Hand(database, jobs) as hand:
        reported = watch_for_report(hand, "greedy")
        with connection.transaction():
            other = put(connection, "patient")
            job = put(connection, "greedy")
        await hand.heard(JobSucceeded, job=job)
        await hand.heard(JobSucceeded, job=other)
        over = await hand.heard(LoopBlocked, count=2, job=job)
    first = next(
        event for event in hand.events if isinstance(event, LoopBlocked) and event.job == job
    )
    assert (first.job, first.job_type, first.over) == (job, "greedy", False)
    assert (over.job, over.job_type, over.over) == (job, "greedy", True)
    assert 1.0 <= first.blocked_s < over.blocked_s
    assert "test_loop.py" in first.place and "greedy" in first.place
    assert f"job {job} greedy has been blocking the event loop for " in first.text()
    assert not any(isinstance(event, LeaseLost) for event in hand.events)
