"""Behind PgBouncer in transaction mode: each statement may meet another session, so nothing may be
left in one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import psycopg
import pytest

import rota
from rota.errors import ConfigurationError
from tests.support.pooler import SERVER_CONNECTIONS, Pooler, program
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put_many, rows, value

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        program() is None,
        reason="PGBOUNCER IS NOT INSTALLED: nothing was tested behind a transaction pooler",
    ),
]

JOBS = 400


@pytest.fixture
def pooled(server: PostgresServer, database: str, tmp_path: Path) -> Iterator[str]:
    """The URL of the test's database, by way of the pooler."""
    with Pooler(server, tmp_path / "pgbouncer.log") as pooler:
        yield pooler.url(database.rpartition("/")[2])


def _jobs() -> rota.Jobs:
    jobs = rota.Jobs()

    @jobs.job("work")
    async def work() -> None: ...

    @jobs.job("once", retry=rota.Fixed("1s", jitter=0))
    def fail_once() -> None:
        if rota.context().job.attempts == 1:
            raise ValueError("not yet")

    return jobs


@rule("M2", "M15", "M30")
async def test_workers_and_producers_leave_nothing_in_the_sessions_of_a_transaction_pooler(
    pooled: str, connection: Connection
) -> None:
    jobs = _jobs()
    app = rota.App(pooled, jobs=[jobs], notify=False)
    work = jobs.types["work"].new()
    with ThreadPoolExecutor(3) as threads:
        async with aclosing(app):
            await asyncio.gather(
                *[app.aenqueue(work) for _ in range(50)],
                *[asyncio.wrap_future(threads.submit(app.enqueue, work)) for _ in range(50)],
            )
    put_many(connection, "work", JOBS)
    put_many(connection, "once", 10)
    async with Hand(pooled, _jobs(), notify=False), Hand(pooled, _jobs(), notify=False):
        await asyncio.to_thread(_until_over, connection, JOBS + 110)
        assert int(str(value(connection, _BACKENDS))) <= SERVER_CONNECTIONS, (
            "or the sessions were not shared"
        )
        # Not in this thread: a worker that is in the middle of something keeps a session until it
        # goes on.
        assert await asyncio.to_thread(_left, pooled) == ([], [], [])
    eventually(
        lambda: rows(connection, _ADVISORY) == [],
        what="idle workers keep only what a session holds",
    )
    assert rows(
        connection,
        "select job_type, status, attempts, count(*) from rota.job_history group by 1, 2, 3 "
        "order by 1",
    ) == [
        ("once", "succeeded", 2, 10),
        ("work", "succeeded", 1, JOBS + 100),
    ]


@rule("M54")
async def test_a_handlers_transaction_leaves_no_limit_in_the_sessions_of_a_pooler(
    pooled: str, connection: Connection
) -> None:
    limit = "show idle_in_transaction_session_timeout"
    seen: list[object] = []
    jobs = rota.Jobs()

    @jobs.job("bills", takes_context=True)
    async def bills(ctx: rota.Context) -> None:
        async with ctx.transaction() as own:
            seen.append(await (await own.execute(limit)).fetchone())

    put_many(connection, "bills", 10)
    report = await Hand(pooled, jobs, notify=False, drain=True).run()
    assert (report.succeeded, set(seen)) == (10, {("1min",)})
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as other:
        assert {other.execute(limit).fetchone() for _ in range(20)} == {("0",)}


@rule("M2")
def test_an_app_that_wants_to_listen_gets_an_error_that_names_the_pooler(pooled: str) -> None:
    jobs = _jobs()
    app = rota.App(pooled, jobs=[jobs])
    with pytest.raises(ConfigurationError, match=r"notify=False"):
        app.enqueue(jobs.types["work"].new())


_BACKENDS = (
    "select count(*) from pg_stat_activity where datname = current_database() "
    "and pid <> pg_backend_pid() and backend_type = 'client backend'"
)
_ADVISORY = (
    "select l.* from pg_locks l join pg_database d on d.oid = l.database "
    "and d.datname = current_database() where l.locktype = 'advisory'"
)


def _left(pooled: str) -> tuple[list[object], list[object], list[object]]:
    """What clients left behind in the sessions of the pooler: prepared statements, settings,
    channels."""
    prepared, settings, channels = [], [], []
    # As many transactions at once as there are sessions, so that each is looked into.
    connections = [
        psycopg.connect(pooled, prepare_threshold=None) for _ in range(SERVER_CONNECTIONS)
    ]
    looked_into = set()
    for connection in connections:
        looked_into.add(value(connection, "select pg_backend_pid()"))
        prepared += rows(connection, "select name, statement from pg_prepared_statements")
        settings += rows(
            connection,
            "select name, setting from pg_settings where source = 'session' "
            "and not name = any (%s)",
            _POOLERS_OWN,
        )
        channels += rows(connection, "select pg_listening_channels()")
    assert len(looked_into) == SERVER_CONNECTIONS
    for connection in connections:
        connection.close()
    return list(prepared), list(settings), list(channels)


_POOLERS_OWN = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
]
"""What PgBouncer keeps for each client and sets again before its next transaction."""


def _until_over(connection: Connection, count: int) -> None:
    eventually(lambda: value(connection, "select count(*) from rota.job_history") == count, 60)
