"""Enqueueing from Python, in the caller's own transaction, on any connection that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, pq
from psycopg.rows import dict_row

import rota
from rota.store.pools import POOL_MAX
from tests.store.work import Connection, count
from tests.support.rules import rule
from tests.support.wait import eventually


@pytest.fixture
def send(app: rota.App) -> rota.JobType[[str], [str], None]:
    @app.job("send", queue="email", priority=3)
    def send(to: str) -> None: ...

    return send


Send = rota.JobType[[str], [str], None]


def _refuses_every_row(_: Any) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a row of ours reached the caller's row factory")

    return refuse


def _hostile(schema: str = "hostile") -> str:
    return f"""
        create schema {schema};
        create table {schema}.job (id text, job_type bytea);
        create table {schema}.idempotency (nothing int);
        create table {schema}.job_type (nothing int);
        create function {schema}.clock() returns timestamptz language sql
          as 'select null::timestamptz';
        create function {schema}.canonical_type(text) returns text language sql
          as 'select null::text';
        create temp table job (nothing int); create temp table idempotency (nothing int);
        set search_path = {schema}, public"""


FORMATS = (
    "set timezone = 'Asia/Kathmandu'; set datestyle = 'SQL, DMY'; set intervalstyle = "
    "'sql_standard'"
)
SETUPS: dict[str, Callable[[Any], Any]] = {
    "as it comes": lambda connection: None,
    "rows are refused": lambda connection: setattr(connection, "row_factory", _refuses_every_row),
    "its cursors bind on the client": lambda connection: setattr(connection, "cursor_factory",
        psycopg.ClientCursor),
    "its cursors are raw": lambda connection: setattr(connection, "cursor_factory",
        psycopg.RawCursor),
    "everything is prepared": lambda connection: setattr(connection, "prepare_threshold", 0),
    "nothing is prepared": lambda connection: setattr(connection, "prepare_threshold", None),
    "read committed": lambda own: own.set_isolation_level(IsolationLevel.READ_COMMITTED),
    "repeatable read": lambda own: own.set_isolation_level(IsolationLevel.REPEATABLE_READ),
    "serializable": lambda connection: connection.set_isolation_level(IsolationLevel.SERIALIZABLE),
    "a hostile search path": lambda connection: connection.execute(_hostile()),
    "no search path": lambda connection: connection.execute("set search_path = ''"),
    "other formats": lambda connection: connection.execute(FORMATS),
    "another encoding": lambda connection: connection.execute("set client_encoding = 'LATIN1'"),
}  # fmt: skip

PIPELINED = ("as it comes", "rows are refused", "everything is prepared", "a hostile search path")


@rule("M20")
def test_a_job_commits_or_vanishes_with_the_transaction_of_any_connection(
    database: str, connection: Connection, send: Send
) -> None:
    for setup, pipelined in (*product(SETUPS, [False]), *product(PIPELINED, [True])):
        where = f"{setup}, {'in a pipeline' if pipelined else 'one by one'}"
        connection.execute("delete from rota.job")
        connection.execute("drop schema if exists hostile cascade")
        with psycopg.connect(database) as callers:
            SETUPS[setup](callers)
            callers.commit()
            for end, left in ((callers.rollback, 0), (callers.commit, 3)):
                with callers.pipeline() if pipelined else nullcontext():
                    first = send.using(connection=callers, key=where).enqueue("ü")
                    again = send.using(connection=callers, key=where).enqueue("ü")
                    many = send.using(connection=callers).enqueue_many([{"to": "a"}, {"to": "b"}])
                assert again == rota.Enqueued(first.id, False, "queued"), where
                assert [job.created for job in (first, *many)] == [True] * 3, where
                assert callers.info.transaction_status == pq.TransactionStatus.INTRANS, where
                assert count(connection) == 0, where
                end()
                assert count(connection) == left, where
            assert not callers.closed, where
        rows = connection.execute(
            "select payload->>'to', queue, priority from rota.job order by id"
        ).fetchall()
        assert rows == [("ü", "email", 3), ("a", "email", 3), ("b", "email", 3)], where


@rule("M20")
async def test_a_job_commits_or_vanishes_with_the_transaction_of_an_async_connection(
    database: str, connection: Connection, send: Send
) -> None:
    for pipelined in (False, True):
        connection.execute("delete from rota.job; delete from rota.idempotency")
        async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as callers:
            for end, left in ((callers.rollback, 0), (callers.commit, 3)):
                async with callers.pipeline() if pipelined else nullcontext():
                    first = await send.using(connection=callers, key="k").aenqueue("x")
                    again = await send.using(connection=callers, key="k").aenqueue("x")
                    await send.using(connection=callers).aenqueue_many([{"to": "a"}, {"to": "b"}])
                assert again == rota.Enqueued(first.id, False, "queued")
                assert callers.info.transaction_status == pq.TransactionStatus.INTRANS
                assert count(connection) == 0
                await end()
                assert count(connection) == left
            assert not callers.closed


def test_a_server_side_cursor_of_the_caller_goes_on_reading(database: str, send: Send) -> None:
    with psycopg.connect(database) as callers, callers.cursor("reads") as reading:
        reading.itersize = 10
        reading.execute("select * from generate_series(1, 100)")
        for row in reading:
            send.using(connection=callers).enqueue(str(row[0]))
        assert callers.execute("select count(*) from rota.job").fetchone() == (100,)


async def test_a_connection_of_the_wrong_kind_is_refused_and_nothing_inserted(
    database: str, app: rota.App, send: Send
) -> None:
    theirs: Any = type("Connection", (), {"__module__": "aiopg.connection"})()
    async with await psycopg.AsyncConnection.connect(database) as asynchronous:
        with psycopg.connect(database) as synchronous:
            wrong: Any
            for wrong in (synchronous.cursor(), object(), theirs, asynchronous):
                with pytest.raises(rota.UsageError):
                    await asyncio.to_thread(send.using(connection=wrong).enqueue, "x")
            for wrong in (asynchronous.cursor(), object(), theirs, synchronous):
                with pytest.raises(rota.UsageError):
                    await send.using(connection=wrong).aenqueue("x")
    assert await app.afind() == []
    await app.aclose()


async def test_what_the_callers_encoding_cannot_say_is_refused_and_the_transaction_continues(
    database: str, send: Send
) -> None:
    latin = f"{database}?client_encoding=LATIN1"
    async with await psycopg.AsyncConnection.connect(latin) as callers:
        mine = send.using(connection=callers)
        await callers.execute("select 1")
        for refused in (mine.aenqueue("日本"), mine.aenqueue_many([{"to": "日本"}])):
            with pytest.raises(
                rota.UsageError, match="client_encoding is LATIN1, which has no '日"
            ):
                await refused
        assert (await mine.aenqueue_many([{"to": "é"}]))[0].created


async def test_without_a_connection_the_app_uses_its_own(app: rota.App, send: Send) -> None:
    in_a_thread = await asyncio.to_thread(send.enqueue, "x")
    here = await send.aenqueue("y")
    many = await send.aenqueue_many([{"to": "z"}])
    assert {job.id for job in await app.afind()} == {in_a_thread.id, here.id, many[0].id}
    await app.aclose()


CLIENTS = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = "
    "current_database() and application_name = 'rota client'"
)


@rule("M2")
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_enqueue_after_a_restart_of_the_server_meets_no_old_connection_and_no_pause(
    app: rota.App,
    send: Send,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
) -> None:
    pools = app._database._pools
    async with AsyncExitStack() as borrowed:
        for _ in range(POOL_MAX):
            if is_async:
                await borrowed.enter_async_context(pools.aconnection())
            else:
                borrowed.enter_context(pools.connection())
    # Or one more: that with which the pool was opened ends a moment later.
    [killed] = connection.execute(CLIENTS).fetchone() or (0,)
    assert killed >= POOL_MAX
    await asyncio.to_thread(eventually, lambda: connection.execute(CLIENTS).fetchone() == (0,))
    for pause in ("pool.sleep", "pool_async.asleep"):
        monkeypatch.setattr(f"psycopg_pool.{pause}", None)  # nobody waits
    enqueued = await send.aenqueue("y") if is_async else await asyncio.to_thread(send.enqueue, "y")
    assert enqueued.created
    await app.aclose()


async def test_a_sync_enqueue_inside_a_running_loop_warns_once_and_works(
    app: rota.App, send: Send
) -> None:
    with pytest.warns(
        RuntimeWarning,
        match=r"enqueue\(\) blocks the running event loop; await aenqueue\(\) instead",
    ) as warned:
        send.enqueue("x")
    assert [warning.filename for warning in warned] == [__file__]
    send.enqueue("y")  # warnings are errors in tests: a second one would be raised
    send.enqueue_many([{"to": "z"}])
    assert len(await app.afind()) == 3
    await app.aclose()


async def test_an_aenqueue_checks_its_arguments_at_the_call(send: Send) -> None:
    with pytest.raises(rota.PayloadError, match="argument 'to'"):
        send.aenqueue(12)  # type: ignore[arg-type, unused-coroutine]
