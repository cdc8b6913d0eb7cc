"""One worker process drains a queue of no-op jobs.

From the start of the first handler to the commit of the last job's end, or as far as it comes in
the time. `CPU` is of the worker's processes and of the server, for each job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.peers.ledger import EACH
from bench.peers.played import Failed
from bench.peers.result import Measured
from bench.peers.stage import Stage, count_left, first_begun, wait_until
from bench.peers.system import Setup, System

NAME = "drain"
ROUNDS_MAX = 99
FAST = 3_000
TIMES = 10
"""A system that finishes FAST jobs a second gets as many times the jobs from its second turn on."""
START_S = 60


def entries(system: System) -> list[Setup]:
    return [*system.setups]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    key = system.name, setup.name
    if key not in stage.speeds:  # a first turn says how many jobs are worth a measurement
        stage.speeds[key] = _drain(stage, system, setup, stage.scale.jobs)[0]
    is_fast = stage.speeds[key] >= FAST
    jobs = stage.scale.jobs * (TIMES if is_fast else 1)
    speed, done, worker_us, server_us = _drain(stage, system, setup, jobs)
    stage.speeds[key] = speed
    note = f"{jobs:,} jobs" if done == jobs else f"{done:,} of {jobs:,} jobs in the time"
    yield Measured(what="no-op jobs", value=speed, unit="jobs/s", better="more", note=note)
    yield Measured(what="CPU of the worker", value=worker_us, unit="µs/job", better="less")
    yield Measured(what="CPU of the server", value=server_us, unit="µs/job", better="less")


def _drain(
    stage: Stage, system: System, setup: Setup, jobs: int
) -> tuple[float, int, float, float]:
    """Return jobs a second, how many were done, and the CPU of worker and server for each."""
    with stage.turn(system, setup) as played, count_left(played) as left:
        played.run("fill", "noop", jobs)
        vacuum(stage, played.url)
        server_s = stage.server.cpu_s(0)
        with played.worker() as worker:
            cpu_s = worker.cpu_s()
            why = f"no job began within {START_S} s"
            began = first_begun(played, START_S, why)
            ends = began + stage.scale.drain_s

            def is_near() -> bool:
                near = played.ledger.count_begun() >= jobs - EACH
                return near or time.time() > ends or not worker.is_alive

            wait_until(is_near, 2 * stage.scale.drain_s)
            wait_until(lambda: left() == 0 or time.time() > ends, 2 * stage.scale.drain_s)
            took_s = time.time() - began
            done = jobs - left()
            cpu_s = worker.cpu_s() - cpu_s
            server_s = stage.server.cpu_s() - server_s
            if not done:
                raise Failed(f"no job was finished: {worker.said}")
        return done / took_s, done, 1e6 * cpu_s / done, 1e6 * server_s / done


def vacuum(stage: Stage, url: str) -> None:
    """Do what autovacuum would have done by then."""
    with stage.server.admin(url.rpartition("/")[2]) as admin:
        admin.execute("vacuum (analyze)")
        admin.execute("checkpoint")
