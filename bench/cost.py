"""What a no-op job costs from enqueue to history:

WAL, CPU of the server and of the client, statements.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

import rota
from bench.app import declare
from bench.figures import Figure
from bench.pgbench import DRAIN_S, count_finished
from bench.process import WorkerProcess
from bench.scale import Scale
from bench.server import DurableServer, value, with_options
from bench.statement_log import OPTIONS, StatementLog

PART = "cost"
BULK = 1_000
COUNTED_SHARE = 4
"""Statements are counted in a run of their own, because logging them costs CPU; it has this share
of jobs."""


@dataclass(frozen=True, slots=True)
class Meter:
    """What has been used so far."""

    wal_bytes: float
    server_s: float
    client_s: float

    @classmethod
    def read(cls, server: DurableServer, connection: psycopg.Connection) -> Meter:
        own = resource.getrusage(resource.RUSAGE_SELF)
        wal = value(
            connection, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
        )
        return cls(wal, server.cpu_s(), own.ru_utime + own.ru_stime)


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Enqueue in bulk, then drain; no checkpoint is requested in between."""
    jobs = scale.cost_jobs
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        before = Meter.read(server, connection)
        _enqueue(url, jobs)
        between = Meter.read(server, connection)
        with WorkerProcess(url, "drain") as worker:
            summary = worker.finish(DRAIN_S)
        after = Meter.read(server, connection)
        if count_finished(url) != jobs:
            raise RuntimeError(f"not all of {jobs:,} jobs were committed as done")
    per_job = 1 / jobs
    note = f"{jobs:,} jobs, bulk enqueue included"
    enqueued, worked = (
        (between.wal_bytes - before.wal_bytes) * per_job,
        (after.wal_bytes - between.wal_bytes) * per_job,
    )
    yield Figure(part=PART, name="WAL, enqueue", value=enqueued, unit="B/job")
    yield Figure(part=PART, name="WAL, claim and finish", value=worked, unit="B/job")
    yield Figure(
        part=PART, name="WAL", value=enqueued + worked, unit="B/job", at_most=1_200, note=note
    )
    yield Figure(
        part=PART,
        name="server CPU, enqueue",
        value=(between.server_s - before.server_s) * 1e6 * per_job,
        unit="µs/job",
    )
    yield Figure(
        part=PART,
        name="server CPU, claim and finish",
        value=(after.server_s - between.server_s) * 1e6 * per_job,
        unit="µs/job",
    )
    yield Figure(
        part=PART,
        name="client CPU, enqueue",
        value=(between.client_s - before.client_s) * 1e6 * per_job,
        unit="µs/job",
    )
    yield Figure(
        part=PART, name="client CPU, worker", value=summary.cpu_s * 1e6 * per_job, unit="µs/job"
    )
    yield _statements(server, jobs // COUNTED_SHARE)


def _statements(server: DurableServer, jobs: int) -> Figure:
    with server.database() as url:
        _enqueue(url, jobs)
        log = StatementLog(server.log)
        with WorkerProcess(with_options(url, OPTIONS), "drain") as worker:
            worker.finish(DRAIN_S)
        counts = log.by_text()
    note = f"{counts.total():,} for {jobs:,} jobs, the worker's start and end included"
    detail = {"by_text": dict(counts.most_common())}
    return Figure(
        part=PART,
        name="statements of a drain",
        value=counts.total() / jobs,
        unit="per job",
        note=note,
        detail=detail,
    )


def _enqueue(url: str, jobs: int) -> None:
    types = declare()
    app = rota.App(url, jobs=[types.jobs])
    try:
        for first in range(0, jobs, BULK):
            app.enqueue_many(types.noop.new(n=n) for n in range(first, min(first + BULK, jobs)))
    finally:
        app.close()
