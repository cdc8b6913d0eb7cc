"""Transactions that commit late, several at once, beside two workers and an old snapshot: how soon
their jobs begin, and what share of the CPU that costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import psycopg

from bench.app import Progress
from bench.figures import Figure, percentile, readable
from bench.old_snapshot import RATE, WARM_UP_S, commit_late, old_snapshot, read_waits, wait
from bench.process import WorkerProcess
from bench.producer import Producer
from bench.scale import Scale
from bench.server import DurableServer

PART = "late commits"
WORKERS = 2
AT_ONCE = 5
SLICES = 9
"""Times without and with late transactions, in turns, beginning and ending without: each row
version that the snapshot keeps makes the next job a little dearer."""


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Work at a steady rate, with and without transactions that commit late."""
    slice_s = scale.steady_s / SLICES
    committed: dict[int, float] = {}
    costs: list[float] = []
    numbers = count()
    with ExitStack() as stack:
        url = stack.enter_context(server.database())
        progress = [_progress(place / f"progress-{number}") for number in range(WORKERS)]
        workers = [
            stack.enter_context(WorkerProcess(url, "run", progress=file.path)) for file in progress
        ]

        def count_done() -> int:
            return sum(file.count for file in progress)

        def cpu_s() -> float:
            return server.cpu_s(settle_s=0) + sum(worker.cpu_s() for worker in workers)

        producer = stack.enter_context(Producer(url, count_done, RATE))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        threads = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        time.sleep(WARM_UP_S)
        stack.enter_context(old_snapshot(url))
        for turn in range(SLICES):
            before_s, before = cpu_s(), count_done()
            if turn % 2:
                late = [
                    threads.submit(commit_late, url, slice_s, producer, numbers)
                    for _ in range(AT_ONCE)
                ]
                for thread in late:
                    committed |= thread.result()
            else:
                wait(slice_s, producer)
            costs.append((cpu_s() - before_s) / (count_done() - before))
        backlog = producer.made - count_done()
        for worker in workers:
            worker.stop()
        waits = read_waits(connection, committed)
    kept_up = backlog < RATE and not producer.paused_s
    behind = "" if kept_up else f"the workers did NOT keep up: {backlog:,} jobs behind; "
    yield Figure(
        part=PART,
        name=f"{AT_ONCE} at once, {WORKERS} workers: picked up after",
        value=max(waits),
        unit="s",
        at_most=0.6,
        note=f"{behind}{len(waits)} transactions, p50 {readable(percentile(waits, 0.5))} s",
        detail={"waits_s": waits},
    )
    # A time with them beside the two around it, without: what grows with time cancels out.
    shares = [
        100 * (2 * costs[at] / (costs[at - 1] + costs[at + 1]) - 1) for at in range(1, SLICES, 2)
    ]
    yield Figure(
        part=PART,
        name="what they add to the CPU",
        value=statistics.median(shares),
        unit="%",
        at_most=3,
        note=f"server and workers; {', '.join(f'{share:.1f}' for share in shares)} % by time",
        detail={"s_a_job": costs},
    )


def _progress(path: Path) -> Progress:
    path.unlink(missing_ok=True)
    return Progress(path)
