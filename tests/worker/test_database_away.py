"""The database goes away under a working process, comes back, or comes back read-only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from rota.store.migrate import migrate
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.process import notes
from tests.worker.table import Connection, connected, over, put, put_many, rows, status, value

pytestmark = pytest.mark.system

Connect = Callable[[], Connection]


@pytest.fixture
def connect(own_server: PostgresServer) -> Iterator[Connect]:
    """Connect to the test's own server, migrated: after each restart anew."""
    migrate(own_server.url())
    opened: list[Connection] = []

    def again() -> Connection:
        opened.append(psycopg.connect(own_server.url(), autocommit=True))
        return opened[-1]

    yield again
    for connection in opened:
        connection.close()


@rule("M2", "M32")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_job_that_runs_through_a_restart_of_the_server_is_finished_by_its_worker(
    start_worker: StartWorker, own_server: PostgresServer, connect: Connect, tmp_path: Path, mode: str
) -> None:
    worker = start_worker(own_server.url(), slots=5)
    connection = connect()
    ended_meanwhile, goes_on = (put(connection, "hold", until=str(tmp_path / name)) for name in ("first", "second"))
    for job in (ended_meanwhile, goes_on):
        worker.until_noted(f"start {job}")

    own_server.stop(mode)
    (tmp_path / "first").touch()
    worker.until_noted(f"end {ended_meanwhile}")
    eventually(lambda: "finisher: database unavailable, next try in" in worker.log)
    own_server.start()
    connection = connect()
    eventually(lambda: status(connection, ended_meanwhile) == "succeeded", 30)
    assert status(connection, goes_on) == "running"
    (tmp_path / "second").touch()
    eventually(lambda: over(connection) == 2)
    late = put(connection, "quick")
    eventually(lambda: status(connection, late) == "succeeded", 30)

    assert set(Counter(what for _, what in notes(worker.notes_file)).values()) == {1}
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    assert value(connection, "select count(*) from rota.attempt") == 0


JOBS = 20_000
"""So many that a quick worker is still at it when the server crashes for the second time."""


@pytest.mark.slow
@rule("M2", "M33")
def test_a_server_that_crashes_under_load_costs_no_job_and_starts_none_twice_but_by_an_expired_lease(
    start_worker: StartWorker, own_server: PostgresServer, connect: Connect
) -> None:
    connection = connect()
    put_many(connection, "quick", JOBS)
    worker = start_worker(own_server.url(), lease="2s", slots=10)
    for _ in range(2):
        before = over(connection)
        eventually(lambda before=before: over(connection) > before + 500)  # type: ignore[misc]  # noqa: B023
        own_server.restart("immediate")
        connection = connect()
    eventually(lambda: over(connection) == JOBS, 90)

    started = Counter(int(what.split()[1]) for _, what in notes(worker.notes_file))
    lost = {job for (job,) in rows(connection, "select job from rota.attempt where error_type = 'LeaseExpired'")}
    assert len(started) == JOBS
    assert {job for job, times in started.items() if times > 1} <= lost
    assert len(lost) <= 2 * 2_200, "no more than what was claimed when the server crashed"
    assert value(connection, "select count(*) from rota.attempt where error_type <> 'LeaseExpired'") == 0


@rule("M2")
def test_a_worker_leaves_the_connections_of_a_server_that_became_read_only(
    start_worker: StartWorker, own_server: PostgresServer, connect: Connect
) -> None:
    # What a failover looks like to old connections: they go on, and every write fails with 25006; new ones find the new server.
    connection = connect()
    worker = start_worker(own_server.url(), slots=1)
    eventually(lambda: connected(connection, "claim"))
    connection.execute("alter database postgres set default_transaction_read_only = on")
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'rota %' and datname = current_database()"
    )
    eventually(lambda: "read-only" in worker.log, what="the worker meets the read-only server")
    connection.execute("alter database postgres reset default_transaction_read_only")
    job = put(connection, "quick")
    eventually(lambda: status(connection, job) == "succeeded", 15)
