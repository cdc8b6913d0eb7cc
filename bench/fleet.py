"""How many workers one server carries: what 10, 50 and 200 idle ones cost it, and where more busy
ones finish no more jobs; and how many of its connections a pooler leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from bench.figures import Figure
from bench.process import WorkerProcess
from bench.producer import due_together, wait_until_done
from bench.scale import Scale
from bench.server import DurableServer, value, with_options
from bench.statement_log import OPTIONS, StatementLog
from tests.support.pooler import Pooler, program

PART = "fleet"
WORKERS = (10, 50, 200)
AT_ONCE = 8
"""Workers that are started at the same time."""
SLOTS = 5
CONNECTIONS_MAX = 1_500
SETTLE_S = 30
OURS = "select count(*) from pg_stat_activity where left(application_name, 5) = 'rota '"


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each fleet idle, then busy. The server is started again with more connections."""
    with server.admin() as admin:
        admin.execute(f"alter system set max_connections = {CONNECTIONS_MAX}".encode())
    server.restart()
    for count in WORKERS if scale.jobs > 100_000 else WORKERS[:1]:
        with server.database() as url, _start(with_options(url, OPTIONS), count) as workers:
            yield from _measure_idle(server, url, scale, count, workers)
            yield _measure_busy(url, scale.jobs // 4, count)
    if program() is None:
        raise RuntimeError("PgBouncer is not installed: nothing was measured behind it")
    settings = f"default_pool_size = 20\nmax_client_conn = {CONNECTIONS_MAX}"
    with Pooler(server, place / "pgbouncer.log", settings) as pooler, server.database() as url:
        name = urlsplit(url).path.removeprefix("/")
        with _start(pooler.url(name), WORKERS[0], notify=False):
            yield _measure_busy(url, scale.jobs // 4, WORKERS[0], ", behind PgBouncer")
            with psycopg.connect(url, autocommit=True) as connection:
                held = value(connection, OURS)
    yield Figure(
        part=PART, name=f"connections, {WORKERS[0]} workers behind PgBouncer", value=held, unit=""
    )


@contextmanager
def _start(url: str, count: int, *, notify: bool = True) -> Iterator[list[WorkerProcess]]:
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        starting = [
            pool.submit(WorkerProcess, url, "run", slots=SLOTS, notify=notify) for _ in range(count)
        ]
        yield [stack.enter_context(one_of.result()) for one_of in starting]


def _measure_idle(
    server: DurableServer, url: str, scale: Scale, count: int, workers: list[WorkerProcess]
) -> Iterator[Figure]:
    time.sleep(SETTLE_S)
    log, before_s = StatementLog(server.log), server.cpu_s()
    own_s = sum(worker.cpu_s() for worker in workers)
    began = time.monotonic()
    time.sleep(scale.idle_s)
    took_s = time.monotonic() - began
    statements = log.by_text().total() / took_s
    server_share = (server.cpu_s(0) - before_s) / took_s
    own_share = (sum(worker.cpu_s() for worker in workers) - own_s) / took_s
    with psycopg.connect(url, autocommit=True) as connection:
        connections = value(connection, OURS)
    memory = sum(worker.own_bytes() for worker in workers) / count
    for name, figure, unit in (
        ("statements", statements, "/s"),
        ("connections", connections, ""),
        ("the server", 100 * server_share, "% of a core"),
        ("a worker", 100 * own_share / count, "% of a core"),
        ("memory of a worker", memory / 1e6, "MB"),
    ):
        yield Figure(part=PART, name=f"{name}, {count} idle workers", value=figure, unit=unit)


def _measure_busy(url: str, jobs: int, count: int, where: str = "") -> Figure:
    with psycopg.connect(url, autocommit=True) as connection:
        due_together(connection, jobs)
        took_s = wait_until_done(connection)
    note = f"{psutil.cpu_count()} cores for all of it, the server's too"
    return Figure(
        part=PART, name=f"no-op jobs, {count} busy workers{where}", value=jobs / took_s,
        unit="jobs/s", note=note,
    )  # fmt: skip
