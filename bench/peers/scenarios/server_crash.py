"""What a crash of the server costs, counted in the ledger, outside of the database.

The server stops at once, as after a power cut, and starts again while two workers run 1,000 jobs; a
worker that has ended is started again, as an operator's supervisor does. Several systems play at
the same time, each on a server of its own. The rest is as in `crash`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.peers.harness import LEASE, SECONDS
from bench.peers.played import Played
from bench.peers.result import Measured
from bench.peers.scenarios import crash
from bench.peers.stage import Stage
from bench.peers.system import Setup, System

NAME = "server crash"
ROUNDS_MAX = 1
TOGETHER = 4
NAMES = "ab"


def entries(system: System) -> list[Setup]:
    return [system.lead]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    more = {SECONDS: str(crash.WORK_S), LEASE: str(crash.LEASE_S)}
    with stage.apart(system.module) as own, own.turn(system, setup, more) as played:
        yield from _crash(played, stage.scale.crash_jobs, crash.find_recover_s(stage, system))


def _crash(played: Played, jobs: int, recover_s: float) -> Iterator[Measured]:
    played.run("fill", "work", jobs)
    with ExitStack() as stack:
        workers = [stack.enter_context(played.worker(crash.SLOTS, name)) for name in NAMES]
        crash.wait_for_begun(played.ledger, jobs // 3, workers[0])
        crashed_at = time.time()
        played.store.restart()
        died: dict[int, float] = {}
        ends = []

        def start_again() -> None:
            for at, worker in enumerate(workers):
                if not worker.is_alive:
                    died[worker.process.pid] = time.time()
                    workers[at] = stack.enter_context(played.worker(crash.SLOTS, NAMES[at]))
                    ends.append(at)

        crash.wait_for_ends(played, jobs, recover_s, start_again)
    note = f"workers ended {len(ends)} times" if ends else ""
    system = played.system
    why = system.durable if system.kept == "redis" else system.why_lost
    yield from crash.count("server crash", played.ledger, jobs, crashed_at, died, note, why)
