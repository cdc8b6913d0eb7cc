"""What an idle worker costs: statements a second, and CPU of its processes and of the server.

A worker that has run a few jobs waits for more. The statements are counted in the server's log,
BEGIN and COMMIT included; with Redis by its own count of commands. The CPU of the server is that of
the processes that serve the worker's connections. Several systems are idle at the same time, each
on its own database.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.peers.played import Failed
from bench.peers.result import Measured
from bench.peers.stage import Stage, wait_until
from bench.peers.system import Setup, System

NAME = "idle"
ROUNDS_MAX = 1
TOGETHER = 5
WARM = 20
START_S = 60
SETTLE_S = 5.0
"""After the last job, until the pauses between polls have reached their longest."""


def entries(system: System) -> list[Setup]:
    return [setup for setup in system.setups if setup.is_lead or setup.is_default]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    for_s = stage.scale.idle_s
    with stage.turn(system, setup) as played:
        store = played.store
        played.run("fill", "stamp", WARM)
        store.count_statements()
        with played.worker() as worker:
            if not wait_until(lambda: len(played.ledger.entries()) >= WARM, START_S):
                raise Failed(f"the first jobs did not begin within {START_S} s: {worker.said}")
            time.sleep(min(SETTLE_S, for_s))
            began, statements = time.monotonic(), store.statements()
            worker_s, server_s = worker.cpu_s(), store.own_cpu_s()
            time.sleep(for_s)
            took_s = time.monotonic() - began
            worker_s, server_s = worker.cpu_s() - worker_s, store.own_cpu_s() - server_s
            statements = store.statements() - statements
            if not worker.is_alive:
                raise Failed(f"the worker ended: {worker.said}")
    note = f"{statements:,} in {took_s:.0f} s"
    yield Measured(
        what="statements", value=statements / took_s, unit="/s", better="less", note=note
    )
    for what, cpu_s in (("CPU of the worker", worker_s), ("CPU of the server", server_s)):
        yield Measured(what=what, value=1e3 * max(0.0, cpu_s) / took_s, unit="ms/s", better="less")
