"""Signs that a team outgrows one table: the cost of workers, one slot, replays and streamed status.

doctor.md cites the figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.figures import Figure
from bench.process import WorkerProcess
from bench.producer import LOOK_S, due_together, fill, wait_until_done
from bench.scale import Scale
from bench.server import DurableServer
from rota.observe.doctor.checks import ROTAS, RUNNING, UNCOUNTED_MAX, WAITED_FOR
from rota.store.db import Database
from rota.store.probe import open_probe

PART = "outgrow"
WORKERS = (1, 2, 4, 8, 12)
"""Not more: sixteen need 112 connections, and max_connections is 100 by default."""
ONE_SLOT_JOBS = 1_000
REPORTS = 2_000
GROWTH = {"prefix": ROTAS, "limit": RUNNING, "names": WAITED_FOR, "deltas": UNCOUNTED_MAX}


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each in a database of its own."""
    for workers in WORKERS:
        yield from _workers(server, workers, scale.jobs)
    yield _one_slot(server)
    yield from _replay(server, scale.jobs // 4)
    yield _reports(server)


def _workers(server: DurableServer, count: int, jobs: int) -> Iterator[Figure]:
    """Start waiting worker processes, then insert the jobs in one transaction."""
    with (
        server.database() as url,
        ExitStack() as stack,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        workers = [stack.enter_context(WorkerProcess(url, "run")) for _ in range(count)]
        due_together(connection, jobs)
        connections = _one(
            connection,
            "select count(*) from pg_stat_activity where left(application_name, 5) = 'rota '",
        )
        took_s, waiting = _until_done(url, connection, jobs)
        for worker in workers:
            worker.stop()
    note = (
        f"{connections} connections; at most {waiting} of Rota's sessions waited for a lock, "
        f"looked at each {LOOK_S:g} s"
    )
    yield Figure(
        part=PART,
        name=f"workers: {count}, no-op jobs",
        value=jobs / took_s,
        unit="jobs/s",
        note=note,
    )


def _until_done(url: str, connection: psycopg.Connection, jobs: int) -> tuple[float, int]:
    waiting = 0
    with open_probe(Database(url)) as probe:

        def look() -> None:
            nonlocal waiting
            waiting = max(waiting, probe.facts("doctor_growth", GROWTH)["waiting"])

        took_s = wait_until_done(connection, look)
    return took_s, waiting


def _one_slot(server: DurableServer) -> Figure:
    with (
        server.database() as url,
        psycopg.connect(url, autocommit=True) as connection,
        WorkerProcess(url, "run", slots=1) as worker,
    ):
        due_together(connection, ONE_SLOT_JOBS)
        took_s, _ = _until_done(url, connection, ONE_SLOT_JOBS)
        worker.stop()
    return Figure(
        part=PART,
        name="one slot, no-op jobs, one after the other",
        value=ONE_SLOT_JOBS / took_s,
        unit="jobs/s",
    )


def _replay(server: DurableServer, jobs: int) -> Iterator[Figure]:
    """Insert finished jobs again from history: a replay begins with that, before any of them
    runs."""
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into rota.job_history (id, queue, job_type, payload, status, priority, run_at, "
            "attempts, claims, created_at, updated_at,"
            " finished_at)"
            " select n, 'default', 'noop', '{\"n\": 1}', 'succeeded', 0, now(), 1, 1, now(), "
            "now(), now() from generate_series(1, %s) n",
            [jobs],
        )
        size = _one(
            connection,
            "select sum(pg_total_relation_size(inhrelid))::int8 from pg_inherits where inhparent = "
            "'rota.job_history'::regclass",
        )
        began = time.perf_counter()
        connection.execute(
            "insert into rota.job (queue, priority, job_type, payload) select queue, priority, "
            "job_type, payload from rota.job_history"
        )
        took_s = time.perf_counter() - began
    yield Figure(
        part=PART, name="replay: from history into the queue", value=jobs / took_s, unit="jobs/s"
    )
    yield Figure(
        part=PART,
        name="history",
        value=size / jobs,
        unit="B/job",
        note="a payload of 8 bytes, indexes included",
    )


def _reports(server: DurableServer) -> Figure:
    """Write the progress of handlers, one statement each."""
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection, "noop", 1)
        connection.execute(
            "update rota.job set status = 'running', locked_by = 'x', locked_until = now() + "
            "interval '1 hour', claims = 1"
        )
        job = _one(connection, "select id from rota.job")
        began = time.perf_counter()
        for done in range(REPORTS):
            connection.execute(
                "select * from rota.job_progress(%s, %s, %s)", [[job], [1], [f'{{"done": {done}}}']]
            ).fetchall()
        took_s = time.perf_counter() - began
    return Figure(
        part=PART,
        name="status written through the table",
        value=REPORTS / took_s,
        unit="writes/s",
        note="one connection, one job",
    )


def _one(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0] or 0)
