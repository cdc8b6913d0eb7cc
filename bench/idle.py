"""What an idle worker costs the server, and how soon it finds a job when no NOTIFY can reach it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, readable
from bench.pick_up import measure_waits
from bench.process import WorkerProcess
from bench.scale import Scale
from bench.server import DurableServer, with_options
from bench.statement_log import OPTIONS, StatementLog

PART = "idle"
SETTLE_S = 5
"""Until the pauses between polls have reached their longest."""
SPARSE_S = 1.7
"""Between two single jobs; no multiple of the longest pause, so that they fall anywhere within
it."""


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Count everything that an idle worker's connections send, by the server's log."""
    for notify in (True, False):
        how = "with NOTIFY" if notify else "without NOTIFY"
        with (
            server.database() as url,
            WorkerProcess(with_options(url, OPTIONS), "run", notify=notify) as worker,
        ):
            time.sleep(SETTLE_S)
            log = StatementLog(server.log)
            time.sleep(scale.idle_s)
            counts = log.by_text()
            worker.stop()
        note = f"{counts.total()} in {scale.idle_s:g} s"
        detail = {"by_text": dict(counts.most_common())}
        value = counts.total() / scale.idle_s
        yield Figure(
            part=PART,
            name=f"statements, {how}",
            value=value,
            unit="/s",
            at_most=2,
            note=note,
            detail=detail,
        )
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
