"""From the commit of a job to the start of its handler, with NOTIFY and by polling alone; and what
each job costs if many workers wait for it.

A bare INSERT and `select 1` take turns with the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import median

import psycopg

import rota
from bench.app import declare
from bench.figures import Figure, percentile, readable
from bench.process import start_workers
from bench.reference import Reference, open_reference
from bench.scale import Scale
from bench.server import DurableServer, value, with_options

PART = "pick-up"
RATE = 100
FLEET = 8
SETTLE_S = 3
"""Until the workers wait for wake-ups."""
END_S = 20
COUNTS_CALLS = "-c track_functions=pl"
CLAIMS = "select calls from pg_stat_user_functions where funcname = 'job_claim'"
"""What the workers' sessions have counted; they tell it at their end."""
ENDED = "select count(*) from rota.job_history"
STARTED = "select (payload->>'n')::int, result::float8 from rota.job_history"


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Insert single jobs at a rate far below the capacity of the workers."""
    for notify, workers in product((True, False), (1, FLEET)):
        with server.database() as url:
            yield from _measure_pick_up(server, url, scale, workers, notify=notify)


def _measure_pick_up(
    server: DurableServer, url: str, scale: Scale, workers: int, *, notify: bool
) -> Iterator[Figure]:
    who = f"{workers} worker{'s' * (workers > 1)}, {'with' if notify else 'without'} NOTIFY"
    count = int(scale.pick_up_s * RATE)
    small_us: list[float] = []
    with (
        start_workers(with_options(url, COUNTS_CALLS), workers, notify=notify),
        open_reference(url) as reference,
    ):
        time.sleep(SETTLE_S)
        before_s, began = server.cpu_s(), time.monotonic()
        waits = measure_waits(url, count, 1 / RATE, lambda: small_us.append(_time(reference)))
        share = (server.cpu_s(0) - before_s) / (time.monotonic() - began)
    with psycopg.connect(url, autocommit=True) as connection:
        claims = value(connection, CLAIMS)
    note = f"{len(waits):,} jobs at {RATE}/s, longest {readable(max(waits))} ms"
    for part, most in ((0.5, 4.0), (0.99, 15.0)):
        yield Figure(
            part=PART,
            name=f"p{part * 100:g}, {who}",
            value=percentile(waits, part),
            unit="ms",
            at_most=most if notify else None,
            note=note,
        )
    yield Figure(
        part=PART,
        name=f"p50, {who}, of a bare INSERT and select 1",
        value=1e3 * percentile(waits, 0.5) / median(small_us),
        unit="×",
    )
    yield Figure(
        part=PART, name=f"claims of a job, {who}", value=claims / count, unit="", at_most=2.0
    )
    yield Figure(part=PART, name=f"server, {who}", value=share * 100, unit="% of a core")


def _time(reference: Reference) -> float:
    return reference.insert() + reference.select()


def measure_waits(
    url: str, count: int, every_s: float, beside: Callable[[], object] = lambda: None
) -> list[float]:
    """Enqueue jobs one by one, each committed by itself; return the waits in milliseconds.

    Half-way between two jobs `beside` is called.

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
            time.sleep(max(0.0, due_at + every_s / 2 - time.perf_counter()))
            beside()
        gives_up_at = time.monotonic() + END_S
        while value(connection, ENDED) < count:
            if time.monotonic() > gives_up_at:
                raise RuntimeError(
                    f"{count - value(connection, ENDED)} of {count} jobs are not over {END_S} s "
                    "after the last"
                )
            time.sleep(0.05)
        started: dict[int, float] = dict(connection.execute(STARTED).fetchall())
    return [(started[n] - at) * 1e3 for n, at in enumerate(committed)]
