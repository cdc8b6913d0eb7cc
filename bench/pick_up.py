"""From the commit of a job to the start of its handler, with NOTIFY and by polling alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

import rota
from bench.app import declare
from bench.figures import Figure, percentile, readable
from bench.process import WorkerProcess
from bench.scale import Scale
from bench.server import DurableServer, one

PART = "pick-up"
RATE = 100
END_S = 20
ENDED = "select count(*) from rota.job_history"
STARTED = "select (payload->>'n')::int, result::float8 from rota.job_history"


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Insert single jobs at a rate far below the worker's capacity."""
    for notify in (True, False):
        with server.database() as url, WorkerProcess(url, "run", notify=notify) as worker:
            waits = measure_waits(url, int(scale.pick_up_s * RATE), 1 / RATE)
            worker.stop()
        how = "with NOTIFY" if notify else "without NOTIFY"
        note = f"{len(waits):,} jobs at {RATE}/s, longest {readable(max(waits))} ms"
        for share, most in ((0.5, 3.0), (0.99, 15.0)):
            value, name = percentile(waits, share), f"p{share * 100:g}, {how}"
            yield Figure(
                part=PART,
                name=name,
                value=value,
                unit="ms",
                at_most=most if notify else None,
                note=note,
            )


def measure_waits(url: str, count: int, every_s: float) -> list[float]:
    """Enqueue jobs one by one, each committed by itself; return the waits in milliseconds.

    A wait is from a commit to the start of its handler. The commit is timed when its answer
    arrives, so a handler that starts before the answer counts as negative.
    """
    types, committed = declare(), []
    app = rota.App(url, jobs=[types.jobs])
    with psycopg.connect(url, autocommit=True) as connection:
        due_at = time.perf_counter()
        for n in range(count):
            due_at += every_s
            time.sleep(max(0.0, due_at - time.perf_counter()))
            app.enqueue(types.stamped.new(n=n).using(connection=connection))
            committed.append(time.time())
        gives_up_at = time.monotonic() + END_S
        while one(connection, ENDED) < count:
            if time.monotonic() > gives_up_at:
                raise RuntimeError(
                    f"{count - one(connection, ENDED)} of {count} jobs are not over {END_S} s "
                    "after the last"
                )
            time.sleep(0.05)
        started: dict[int, float] = dict(connection.execute(STARTED).fetchall())
    return [(started[n] - at) * 1e3 for n, at in enumerate(committed)]
