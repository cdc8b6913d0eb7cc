"""The server goes away under load, for longer than leases last, or cuts all connections again and
again."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.runtime.service import LOG_S
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import Connect, StartWorker
from tests.worker.process import WorkerProcess, notes
from tests.worker.table import Connection, over, put, put_many, rows, value

pytestmark = [pytest.mark.waits, pytest.mark.system]


@dataclass(frozen=True)
class Absence:
    """How long the server is away, and how long the leases of the jobs are that run meanwhile."""

    lease_s: int
    away_s: int
    jobs: int = 100


@rule("M2", "M31", "M33")
@pytest.mark.parametrize(
    "absence",
    [
        pytest.param(Absence(lease_s=6, away_s=7), id="7 s", marks=pytest.mark.slow),
        pytest.param(Absence(lease_s=120, away_s=180), id="3 minutes", marks=pytest.mark.long),
    ],
)
def test_jobs_that_run_through_an_absence_of_the_server_longer_than_their_leases_are_not_repeated(
    start_worker: StartWorker,
    own_server: PostgresServer,
    connect: Connect,
    tmp_path: Path,
    absence: Absence,
) -> None:
    worker = start_worker(
        own_server.url(), lease=f"{absence.lease_s}s", concurrency=absence.jobs, reserved=0
    )
    connection = connect()
    jobs = [put(connection, "hold", until=str(tmp_path / "go")) for _ in range(absence.jobs)]
    eventually(lambda: len(notes(worker.notes_file)) == absence.jobs)
    # Another one that would take them over, and has nothing to hold itself.
    start_worker(
        own_server.url(), lease=f"{absence.lease_s}s", concurrency=absence.jobs, reserved=0
    )

    own_server.stop("immediate")
    time.sleep(absence.away_s)
    worker.freeze()  # that it does not come back first
    own_server.start()
    connection = connect()
    # Every lease is over. What a drain would do that starts now, with no memory of what was; where
    # the server took its time to come up, too late.
    at_once = (
        "select id from rota.job_reap('-infinity', case "
        "when rota.uptime() < %s * interval '1 s' then 1000 else 0 end)"
    )
    assert rows(connection, at_once, absence.lease_s / 3) == []
    worker.signal(signal.SIGCONT)
    # The worker that holds the jobs comes back, and so does the other.
    eventually(lambda: value(connection, _RENEWED) == absence.jobs, 60 + absence.lease_s)
    # A reaper that takes the job of a worker that is gone would have taken any job of theirs.
    [(gone,)] = rows(connection, _GONE)
    eventually(lambda: over(connection) == 1, 60 + absence.lease_s)
    (tmp_path / "go").touch()
    eventually(lambda: over(connection) == 1 + absence.jobs)
    late = put(connection, "quick")
    eventually(lambda: over(connection) == 2 + absence.jobs)

    assert _starts(worker) == Counter([*jobs, gone, late])
    assert rows(
        connection,
        "select distinct status, attempts, claims from rota.job_history where id <> %s",
        gone,
    ) == [("succeeded", 1, 1)]
    assert rows(connection, "select job from rota.attempt") == [(gone,)]


_GONE = """
insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, started_at)
values (
  'quick', 'running', 'gone', clock_timestamp() - interval '1 second', 1, 1,
  clock_timestamp() - interval '1 minute'
) returning id
"""
_RENEWED = (
    "select count(*) from rota.job where status = 'running' and locked_until > clock_timestamp() "
    "and claims = 1"
)

_UNAVAILABLE = re.compile(
    r"^WARNING (.+): database unavailable, next try in \S+ s: (.+)$", re.MULTILINE
)
ROUNDS = 40
JOBS_A_ROUND = 100


@pytest.mark.slow
@rule("M2", "M30", "M33")
@pytest.mark.parametrize("stroke", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_storm_that_strikes_every_connection_ten_times_a_second_costs_no_job(
    start_worker: StartWorker, database: str, connection: Connection, stroke: str
) -> None:
    workers = [start_worker(database, lease="2s", concurrency=10) for _ in range(2)]
    strike = (
        f"select {stroke}(pid) from pg_stat_activity where datname = current_database() "
        "and application_name like 'rota %'"
    )
    began_at = time.monotonic()
    for _ in range(ROUNDS):
        put_many(connection, "quick", JOBS_A_ROUND)
        rows(connection, strike)
        time.sleep(0.1)
    _all_end_once(connection, workers[0], ROUNDS * JOBS_A_ROUND)
    told = Counter(
        (worker.pid, *said.groups())
        for worker in workers
        for said in _UNAVAILABLE.finditer(worker.log)
    )
    assert told or stroke == "pg_cancel_backend", "one that is cancelled may have been idle"
    assert max(told.values(), default=0) <= 1 + (time.monotonic() - began_at) / LOG_S, (
        "the same trouble is not told each time"
    )


@pytest.mark.slow
@rule("M2", "M30", "M33")
def test_a_server_that_crashes_and_stays_away_under_load_costs_no_job(
    start_worker: StartWorker, own_server: PostgresServer, connect: Connect
) -> None:
    connection = connect()
    put_many(connection, "quick", 10_000)
    worker = start_worker(own_server.url(), lease="2s", concurrency=10)
    eventually(lambda: over(connection) > 500)
    own_server.stop("immediate")
    time.sleep(2.5)
    own_server.start()
    _all_end_once(connect(), worker, 10_000)


def _all_end_once(connection: Connection, worker: WorkerProcess, count: int) -> None:
    """Each job ends, once; none was started a second time but for a lease that had expired."""
    eventually(lambda: over(connection) == count, 90)
    assert rows(
        connection,
        "select count(*), count(distinct id) from rota.job_history where status = 'succeeded'",
    ) == [(count, count)]
    assert value(connection, "select count(*) from rota.job") == 0
    starts = _starts(worker)
    lost = Counter(
        job
        for (job,) in rows(
            connection, "select job from rota.attempt where error_type = 'LeaseExpired'"
        )
    )
    assert len(starts) == count
    assert {job: times for job, times in starts.items() if times > 1 + lost[job]} == {}
    assert (
        value(connection, "select count(*) from rota.attempt where error_type <> 'LeaseExpired'")
        == 0
    )


def _starts(worker: WorkerProcess) -> Counter[int]:
    """How often each job was started, by any worker of the test."""
    return Counter(
        int(what.removeprefix("start "))
        for _, what in notes(worker.notes_file)
        if what.startswith("start ")
    )
