"""The database goes away under a working process, comes back, or comes back read-only."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

import rota
from rota.observe.events import DatabaseLost, JobFailed, JobSucceeded, LeaseLost
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import aeventually, eventually
from tests.worker.conftest import Connect, StartWorker
from tests.worker.hand import Hand
from tests.worker.process import notes
from tests.worker.table import Connection, over, put, put_many, rows, status, value

pytestmark = pytest.mark.system


JOBS = 6_000
"""So many that a quick worker is still at it when the server crashes."""


@rule("M2", "M33")
def test_a_server_crash_under_load_costs_no_job_and_repeats_only_expired_leases(
    start_worker: StartWorker, own_server: PostgresServer, connect: Connect
) -> None:
    connection = connect()
    worker = start_worker(own_server.url(), lease="2s", concurrency=10)
    put_many(connection, "quick", JOBS)
    eventually(lambda: over(connection) > 500)
    own_server.restart("immediate")
    connection = connect()
    eventually(lambda: over(connection) == JOBS, 90)

    started = Counter(int(what.split()[1]) for _, what in notes(worker.notes_file))
    lost = {
        job
        for (job,) in rows(
            connection, "select job from rota.attempt where error_type = 'LeaseExpired'"
        )
    }
    assert len(started) == JOBS
    assert {job for job, times in started.items() if times > 1} <= lost
    assert len(lost) < JOBS, "what the worker held, and not what waited"
    assert (
        value(connection, "select count(*) from rota.attempt where error_type <> 'LeaseExpired'")
        == 0
    )


@rule("M2", "M32")
async def test_an_end_that_was_committed_is_known_though_its_answer_was_lost(
    own_server: PostgresServer, connect: Connect
) -> None:
    jobs = rota.Jobs()
    started, go = asyncio.Event(), asyncio.Event()

    @jobs.job("succeeds")
    async def succeeds() -> None:
        started.set()
        await go.wait()

    @jobs.job("fails")
    async def fails() -> None:
        await succeeds.func()
        raise OSError("no route to host")

    connection = connect()
    connection.execute("set synchronous_commit = local")
    async with Hand(own_server.url(), jobs, notify=False, poll_s=0.1) as hand:
        for name in ("succeeds", "fails"):
            started.clear()
            go.clear()
            job = put(connection, name)
            await started.wait()
            with _commits_that_wait(connection, connect()):
                go.set()
                [finish] = await aeventually(lambda: rows(connection, WAITS_FOR_A_STANDBY))
                # The commit is on disk and its answer is not sent: both stay so if the connection
                # is cut now.
                await _cut(connection, finish)
            await hand.heard(JobSucceeded if name == "succeeds" else JobFailed, job=job)
    assert not [event for event in hand.events if isinstance(event, LeaseLost)]
    lost = [event.service for event in hand.events if isinstance(event, DatabaseLost)]
    assert "finisher" in lost
    assert hand.report is not None and (hand.report.succeeded, hand.report.failed) == (1, 1)


WAITS_FOR_A_STANDBY = (
    "select pid from pg_stat_activity where wait_event = 'SyncRep' "
    "and application_name = 'rota finish'"
)


async def _cut(connection: Connection, waiting: TupleRow) -> None:
    """End a connection that waits for a standby; return when it is gone."""
    connection.execute("select pg_terminate_backend(%s)", waiting)
    await aeventually(lambda: rows(connection, WAITS_FOR_A_STANDBY) != [waiting])


@contextmanager
def _commits_that_wait(connection: Connection, probe: Connection) -> Iterator[None]:
    """Let commits wait for a standby that there is not, between their reaching the disk and their
    answer."""
    over = threading.Event()

    def commit() -> None:
        while not over.is_set():
            probe.execute("insert into rota.queue (name) values (gen_random_uuid())")

    with ThreadPoolExecutor(1) as pool:
        connection.execute("alter system set synchronous_standby_names = 'nobody'")
        connection.execute("select pg_reload_conf()")
        committing = pool.submit(commit)
        waits = "select from pg_stat_activity where pid = %s and wait_event = 'SyncRep'"
        try:
            eventually(lambda: rows(connection, waits, probe.info.backend_pid))
            yield
        finally:
            over.set()
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")
            committing.result(30)


@rule("M2")
async def test_a_login_that_is_refused_for_a_while_costs_a_worker_nothing_that_it_holds(
    database: str, connection: Connection
) -> None:
    role = f"{value(connection, 'select current_database()')}_away"
    go = asyncio.Event()
    jobs = rota.Jobs()

    @jobs.job("hold")
    async def hold() -> None:
        await go.wait()

    connection.execute(f"create role {role} superuser login".encode())
    try:
        job = put(connection, "hold")
        async with Hand(make_conninfo(database, user=role), jobs, lease_s=12) as hand:
            await aeventually(lambda: status(connection, job) == "running")
            connection.execute(f"alter role {role} nologin".encode())
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [role]
            )
            go.set()
            services = {"finisher", "claimer", "lease keeper", "listener"}
            await hand.until(lambda: _refused(hand) >= services)
            connection.execute(f"alter role {role} login".encode())
            await hand.heard(JobSucceeded, job=job)
    finally:
        # The partitions that the worker has created, at midnight.
        connection.execute(f"reassign owned by {role} to current_user".encode())
        connection.execute(f"drop role {role}".encode())


def _refused(hand: Hand) -> set[str]:
    """The services that were told that the login is refused."""
    return {
        event.service
        for event in hand.events
        if isinstance(event, DatabaseLost) and "not permitted to log in" in event.reason
    }
