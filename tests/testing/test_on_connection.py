"""A harness on the test's own connection: the whole attempt is in its transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import Harness
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
AsyncConnection = psycopg.AsyncConnection[TupleRow]


@pytest.fixture
def app() -> rota.App:
    """An App whose own database cannot be reached: nothing may need it."""
    return rota.App("postgresql://nobody@127.0.0.1:1/none", release="1")


@pytest.fixture
def plain(database: str) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back."""
    with psycopg.connect(database) as connection:
        connection.execute("create table public.line (text text unique)")
        with connection.transaction(force_rollback=True):
            yield connection
        connection.rollback()


@pytest.fixture
def harness(app: rota.App, plain: Connection) -> Iterator[Harness]:
    with Harness(app, connection=plain) as harness:
        yield harness


@pytest.fixture
async def async_connection(database: str) -> AsyncIterator[AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute("create table public.line (text text unique)")
        yield connection
        await connection.rollback()


@pytest.fixture
async def awaited(app: rota.App, async_connection: AsyncConnection) -> AsyncIterator[Harness]:
    with Harness(app, connection=async_connection) as harness:
        yield harness


def count(connection: Connection, table: str) -> int:
    [(number,)] = connection.execute(f"select count(*) from {table}").fetchall()
    return int(number)


@rule("M50")
def test_a_whole_attempt_is_gone_when_the_test_rolls_back(
    app: rota.App, database: str, connection: Connection
) -> None:
    connection.execute("create table public.line (text text)")
    with psycopg.connect(database) as own:

        @app.job("write", takes_context=True)
        def write(context: rota.Context, text: str) -> str:
            own.execute("insert into public.line values (%s)", [text])
            with context.effect(f"mail:{text}") as effect:
                effect.result = "m-1"
            context.step("double", len, text)
            context.progress(1, 2)
            write_more.enqueue()
            return text

        @app.job("write_more")
        def write_more() -> None: ...

        with Harness(app, connection=own) as harness:
            harness.freeze()
            done = harness.perform(write.new("a"))
            assert (done.status, done.result) == ("succeeded", "a")
            assert done.job.progress is not None
            assert done.job.progress.done == 1
            assert [(kept.key, kept.status) for kept in app.effects.find(job=done.id)] == [
                ("double", "done"),
                ("mail:a", "done"),
            ]
            harness.enqueued(write_more)
            assert harness.drain().succeeded == 1
            tables = ("rota.job_history", "rota.effect", "public.line")
            assert [count(own, table) for table in tables] == [2, 2, 1]
        own.rollback()
    for table in ("rota.job", "rota.job_history", "public.line"):
        assert count(connection, table) == 0, table
    [(drift,)] = connection.execute("select rota.clock() - statement_timestamp()").fetchall()
    assert not drift


def test_a_plain_handler_runs_in_the_thread_of_the_test(app: rota.App, harness: Harness) -> None:
    threads = []

    @app.job("look")
    def look() -> None:
        threads.append(threading.current_thread())

    assert harness.perform(look.new()).status == "succeeded"
    assert threads == [threading.current_thread()]


def test_a_handler_whose_sql_failed_leaves_a_failed_job_and_a_sound_transaction(
    app: rota.App, harness: Harness, plain: Connection
) -> None:
    plain.execute("insert into public.line values ('a')")

    @app.job("write")
    def write(text: str) -> None:
        plain.execute("insert into public.line values ('of the handler')")
        plain.execute("insert into public.line values (%s)", [text])

    done = harness.perform(write.new("a"))
    assert (done.status, done.attempt) == ("failed", 1)
    assert isinstance(done.error, psycopg.errors.UniqueViolation)
    assert done.job.error_type is not None
    assert done.job.error_type.endswith("UniqueViolation")
    assert count(plain, "public.line") == 1, "it returned to where the handler began"


def test_what_a_handler_wrote_before_another_error_stays(
    app: rota.App, harness: Harness, plain: Connection
) -> None:
    @app.job("write", max_attempts=1)
    def write() -> None:
        plain.execute("insert into public.line values ('a')")
        raise ValueError("no")

    done = harness.perform(write.new())
    assert (done.status, repr(done.error)) == ("dead", "ValueError('no')")
    assert count(plain, "public.line") == 1


def test_a_job_that_its_handler_finished_in_a_transaction_has_succeeded(
    app: rota.App, harness: Harness, plain: Connection
) -> None:
    @app.job("finish", takes_context=True)
    def finish(context: rota.Context, fails: bool) -> int:
        with context.transaction() as connection:
            if fails:
                raise ValueError("not today")
            connection.execute("insert into public.line values ('a')")
            return 7

    @app.job("complete", takes_context=True)
    async def complete(context: rota.Context) -> None:
        plain.execute("insert into public.line values ('b')")
        context.complete(plain, result=7)

    for made in (finish.new(False), complete.new()):
        done = harness.perform(made)
        assert (done.status, done.error, done.result) == ("succeeded", None, 7)
    assert repr(harness.perform(finish.new(True)).error) == "ValueError('not today')"
    assert count(plain, "public.line") == 2


def test_what_is_around_attempts_is_around_one_on_the_connection(
    app: rota.App, harness: Harness
) -> None:
    seen: list[str] = []

    @app.middleware
    @contextmanager
    def note(context: rota.Context) -> Iterator[None]:
        seen.append(f"before {context.job.job_type}")
        yield
        seen.append("after")

    @app.job("plain")
    def plain() -> None:
        seen.append("in")

    @app.job("async")
    async def wait() -> None:
        seen.append("in")

    harness.perform(plain.new())
    harness.perform(wait.new())
    assert seen == ["before plain", "in", "after", "before async", "in", "after"]


async def test_an_async_handler_runs_on_the_loop_of_an_async_test(
    app: rota.App, awaited: Harness, async_connection: AsyncConnection
) -> None:
    loops = []

    @app.job("write", takes_context=True)
    async def write(context: rota.Context) -> None:
        loops.append(asyncio.get_running_loop())
        await async_connection.execute("insert into public.line values ('a')")
        async with context.transaction() as connection:
            assert connection is async_connection

    await write.aenqueue()
    await awaited.aenqueued(write)
    assert (await awaited.adrain()).succeeded == 1
    await awaited.arefute_enqueued(write)
    assert loops == [asyncio.get_running_loop()]


async def test_a_plain_handler_of_an_async_test_runs_in_a_thread(
    app: rota.App, awaited: Harness
) -> None:
    seen: list[Any] = []

    @app.job("write", takes_context=True)
    def write(context: rota.Context) -> None:
        seen.append(threading.current_thread())
        with context.effect("mail:1") as effect:
            effect.result = "m"
        write_more.enqueue()

    @app.job("write_more")
    def write_more() -> None: ...

    done = await awaited.aperform(write.new())
    assert (done.status, done.error) == ("succeeded", None)
    assert seen != [threading.main_thread()]
    await awaited.aenqueued(write_more)


async def test_a_plain_handler_on_a_plain_connection_needs_plain_code(
    app: rota.App, database: str
) -> None:
    @app.job("write")
    def write() -> None: ...

    with (
        psycopg.connect(database) as connection,
        Harness(app, connection=connection) as harness,
        pytest.raises(rota.UsageError, match="call perform or drain from plain code"),
    ):
        await harness.aperform(write.new())


def test_a_connection_without_a_transaction_is_refused(
    app: rota.App, connection: Connection
) -> None:
    with pytest.raises(rota.UsageError, match="what a job writes would stay"):
        Harness(app, connection=connection)


def test_no_worker_can_start_beside_the_connection(app: rota.App, harness: Harness) -> None:
    @app.job("write")
    def write() -> None: ...

    for start in (app.drain, lambda: harness.run_twice(write.new())):
        with pytest.raises(rota.UsageError, match="call drain or perform of the Harness"):
            start()
