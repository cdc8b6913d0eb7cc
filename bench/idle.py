"""What idle workers cost the server, and how soon they find a job when no NOTIFY can reach them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from bench.figures import Figure, readable
from bench.pick_up import measure_waits
from bench.process import WorkerProcess, start_workers
from bench.scale import Scale
from bench.server import DurableServer, with_options
from bench.statement_log import OPTIONS, StatementLog

PART = "idle"
SETTLE_S = 20
"""Until the pauses between polls have reached their longest, and the workers know their number."""
FLEET = 10
AT_MOST = ((1, True, 0.5), (1, False, 1.5), (FLEET, True, 2.5), (FLEET, False, None))
"""Workers, whether they use NOTIFY, and the most statements a second of all of them."""
SPARSE_S = 1.7
"""Between two single jobs; no multiple of the longest pause, so that they fall anywhere within
it."""
CONNECTIONS = """
select pid, application_name
from pg_stat_activity
where datname = current_database() and application_name like 'rota %'"""


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Count everything that the connections of idle workers send, by the server's log."""
    for workers, notify, most in AT_MOST:
        with server.database() as url:
            yield from _measure_idle(server, url, scale, workers, most, notify=notify)
    with server.database() as url, WorkerProcess(url, "run", notify=False) as worker:
        time.sleep(SETTLE_S)
        waits = measure_waits(url, scale.sparse_jobs, SPARSE_S)
        worker.stop()
    note = (
        f"longest of {len(waits)}, one every {SPARSE_S:g} s: "
        f"{', '.join(readable(wait) for wait in waits)}"
    )
    yield Figure(
        part=PART,
        name="pick-up by an idle worker, without NOTIFY",
        value=max(waits),
        unit="ms",
        at_most=1_000,
        note=note,
    )


def _measure_idle(
    server: DurableServer, url: str, scale: Scale, workers: int, most: float | None, *, notify: bool
) -> Iterator[Figure]:
    who = f"{workers} worker{'s' * (workers > 1)}, {'with' if notify else 'without'} NOTIFY"
    with (
        psycopg.connect(url, autocommit=True) as connection,
        start_workers(with_options(url, OPTIONS), workers, notify=notify) as fleet,
    ):
        time.sleep(SETTLE_S)
        log = StatementLog(server.log)
        time.sleep(scale.idle_s)
        counts = log.by_text()
        connections = Counter[str]()
        server_bytes = 0
        for pid, name in connection.execute(CONNECTIONS).fetchall():
            connections[name] += 1
            with suppress(psutil.NoSuchProcess):  # one that is open for a moment only
                server_bytes += psutil.Process(pid).memory_full_info().uss
        worker_bytes = sum(worker.own_bytes() for worker in fleet)
    yield Figure(
        part=PART,
        name=f"statements, {who}",
        value=counts.total() / scale.idle_s,
        unit="/s",
        at_most=most,
        note=f"{counts.total()} in {scale.idle_s:g} s",
        detail={"by_text": dict(counts.most_common())},
    )
    yield Figure(
        part=PART,
        name=f"connections of a worker, {who}",
        value=connections.total() / workers,
        unit="",
        note=f"own memory of a worker: {worker_bytes / workers / 1e6:.0f} MB, of a connection in "
        f"the server: {server_bytes / connections.total() / 1e6:.1f} MB",
        detail={"by_name": dict(connections)},
    )
