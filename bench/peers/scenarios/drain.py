"""One worker process drains a queue of no-op jobs.

From the start of the first handler to the commit of the last job's end, or as far as it comes in
the time. `CPU` is of the worker's processes and of the server, for each job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from bench.peers.ledger import EACH
from bench.peers.played import Failed, Played
from bench.peers.result import Measured
from bench.peers.stage import Stage, count_left, first_begun, wait_until
from bench.peers.system import Setup, System

NAME = "drain"
ROUNDS_MAX = 99
TOGETHER = 1
WHAT = "no-op jobs"
TRIAL = 5
"""A first turn, with a fifth of the jobs, says how many are worth a measurement; it is one, if they
were too many for the time."""
FAST = 3_000
TIMES = 10
"""A system that finishes FAST jobs a second gets as many times the jobs."""
START_S = 60


@dataclass(frozen=True, slots=True)
class Drain:
    """What one drain came to."""

    speed: float
    """Jobs a second."""
    done: int
    worker_us: float
    server_us: float
    """CPU for each job."""


def entries(system: System) -> list[Setup]:
    return [*system.setups]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    jobs = stage.scale.jobs // TRIAL
    drained = drain_in_turn(stage, system, setup, jobs)
    stage.speeds[system.name, setup.name] = drained.speed
    if drained.done == jobs:
        jobs = count_worth(stage, system, setup)
        drained = drain_in_turn(stage, system, setup, jobs)
    yield from describe(drained, jobs)


def count_worth(stage: Stage, system: System, setup: Setup) -> int:
    """Return how many jobs are worth a measurement, by its first drain or by one now."""
    key = system.name, setup.name
    if key not in stage.speeds:
        jobs = stage.scale.jobs // TRIAL
        stage.speeds[key] = drain_in_turn(stage, system, setup, jobs).speed
    return stage.scale.jobs * (TIMES if stage.speeds[key] >= FAST else 1)


def describe(drained: Drain, jobs: int, more: str = "") -> Iterator[Measured]:
    """Return the figures of a drain."""
    done = drained.done
    note = f"{jobs:,} jobs" if done == jobs else f"{done:,} of {jobs:,} jobs in the time"
    yield Measured(what=WHAT, value=drained.speed, unit="jobs/s", better="more", note=note + more)
    yield Measured(what="CPU of the worker", value=drained.worker_us, unit="µs/job", better="less")
    yield Measured(what="CPU of the server", value=drained.server_us, unit="µs/job", better="less")


def drain_in_turn(
    stage: Stage,
    system: System,
    setup: Setup,
    jobs: int,
    during: Callable[[Played], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Drain:
    """Drain so many jobs in a turn, within a context."""
    with stage.turn(system, setup) as played:
        played.run("fill", "noop", jobs)
        with during(played):
            return drain(played, jobs, stage.scale.drain_s)


def drain(played: Played, jobs: int, within_s: float) -> Drain:
    """Run a worker on so many jobs, for as long at most."""
    with count_left(played) as left:
        played.store.settle()
        server_s = played.store.cpu_s(0)
        with played.worker() as worker:
            cpu_s = worker.cpu_s()
            why = f"no job began within {START_S} s"
            began = first_begun(played, START_S, why)
            ends = began + within_s

            def is_near() -> bool:
                near = played.ledger.count_begun() >= jobs - EACH
                return near or time.time() > ends or not worker.is_alive

            wait_until(is_near, 2 * within_s)
            wait_until(lambda: left() == 0 or time.time() > ends, 2 * within_s)
            took_s = time.time() - began
            done = jobs - left()
            cpu_s = worker.cpu_s() - cpu_s
            server_s = played.store.cpu_s() - server_s
            if not done:
                raise Failed(f"no job was finished: {worker.said}")
        return Drain(done / took_s, done, 1e6 * cpu_s / done, 1e6 * server_s / done)
