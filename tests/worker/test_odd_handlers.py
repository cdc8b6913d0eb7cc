"""What a handler comes to is the user's code to the last method of its exceptions: none of it may
stop the worker, or harm the jobs beside it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import pickle
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rota
from rota.declare.context import Context
from rota.model.outcome import Errored, Outcome
from rota.store.db import Database
from rota.worker.attempt import Attempt
from rota.worker.processes.handler_process import HandlerProcess
from rota.worker.processes.importable import describe_handler
from rota.worker.processes.messages import RunJob
from tests.store.work import Hand as Claimant
from tests.store.work import insert
from tests.support.job import make_job
from tests.support.rules import rule
from tests.worker import heavy
from tests.worker.alone import give, lone_executor
from tests.worker.hand import Hand, make_spec
from tests.worker.table import Connection, put, rows


@rule("M35", "M42")
async def test_a_job_that_a_blocked_loop_kept_from_starting_neither_times_out_nor_keeps_its_slot(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    @jobs.job("rude", priority=5)
    async def rude() -> None:
        time.sleep(1.0)  # noqa: ASYNC251 - blocking the loop is the point

    @jobs.job("quick", timeout="0.5s", max_attempts=1)
    async def quick() -> None: ...

    for _ in range(3):
        put(connection, "quick")
    put(connection, "rude")
    report = await Hand(database, jobs, drain=True).run()
    assert (report.succeeded, report.dead) == (4, 0)


@rule("M35")
async def test_an_async_handler_that_will_not_stop_loses_its_attempt_all_the_same(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    release = asyncio.Event()

    @jobs.job("stubborn", timeout="0.2s", retry=rota.Fixed("1h"))
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    job = put(connection, "stubborn")
    async with Hand(database, jobs) as hand:
        try:
            await hand.heard(rota.events.JobFailed)
            assert rows(
                connection, "select status, error_type from rota.job where id = %s", job
            ) == [("failed", "rota.errors.AttemptTimeout")]
        finally:
            release.set()


async def test_one_handlers_context_variables_are_not_the_next_ones(connection: Connection) -> None:
    from contextvars import ContextVar

    seen: list[str] = []
    variable: ContextVar[str] = ContextVar("variable", default="clean")

    @rota.Jobs().job("t")
    async def handler() -> None:
        seen.append(variable.get())
        variable.set("used")

    insert(connection, 5)
    # One slot, so each but the first is started where the one before it has ended.
    executor, others = lone_executor(slots=1)
    claimed = Claimant(connection).claim().jobs
    give(executor, *(Attempt(job, handler._declaration, time.monotonic(), 60.0) for job in claimed))
    for _ in range(5):
        await asyncio.wait_for(others.ended.get(), 30)
    await executor.close()
    assert seen == ["clean"] * 5


LARGE = weakref.WeakSet[Outcome]()


def fail(kind: type[Exception]) -> None:
    local = rota.Dead("a large object")
    LARGE.add(local)
    raise kind("x")


# What the frames of these have keeps the context variables of their attempts alive.


def fail_in_a_copy() -> None:
    copy = contextvars.copy_context()
    copy.run(fail, rota.Dead)


async def fail_after_a_task() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    fail(ValueError)


async def time_out() -> None:
    local = rota.Dead("a large object")
    LARGE.add(local)
    async with asyncio.timeout(0):
        await asyncio.sleep(9)


@contextmanager
def nothing_kept() -> Iterator[None]:
    gc.disable()  # it counts objects, and not bytes
    try:
        yield
        assert len(LARGE) == 0
    finally:
        gc.enable()


@rule("M2")
def test_a_failed_attempt_keeps_nothing_of_its_handler_alive(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    ways = {
        "plain": lambda: fail(ValueError),
        "dead": lambda: fail(rota.Dead),
        "copy": fail_in_a_copy,
        "task": fail_after_a_task,
        "timeout": time_out,
    }
    jobs = [app.job(name, max_attempts=1)(way).new() for name, way in ways.items()]
    upgrade: Any = {1: lambda _: fail(ValueError)}
    old = app.job("old", max_attempts=1, version=2, upgrade=upgrade)(lambda: None)
    app.enqueue_many([*jobs, old.new()] * 20)
    connection.execute("update rota.job set payload_version = 1 where job_type = 'old'")
    with nothing_kept():
        assert app.drain().dead == 120
    app.close()


@rule("M2")
def test_a_process_of_its_own_keeps_nothing_of_a_failed_handler_alive() -> None:
    declaration = heavy.jobs.types["awaits"]._declaration
    setup = describe_handler(declaration, make_spec(heavy.jobs), Database(""))
    channel: Any = None
    process, job = HandlerProcess(channel, setup, time_out, (), None), make_job()
    run = RunJob(job, pickle.dumps({}), 60.0)
    with nothing_kept():
        for _ in range(3):
            copy = contextvars.copy_context()
            assert isinstance(copy.run(process._attempt, run, Context(job, "w"), None), Errored)
