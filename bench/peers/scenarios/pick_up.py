"""From the commit of a single job to the start of its handler, at 100 jobs a second, one idle
worker process.

The commit is timed when its answer has arrived, so a handler that starts before counts as 0 ms.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import percentile
from bench.peers.played import Failed
from bench.peers.result import Measured
from bench.peers.stage import Stage, wait_until
from bench.peers.system import Setup, System

NAME = "pick-up"
ROUNDS_MAX = 1
TOGETHER = 1
RATE = 100
WARM = 20
"""Jobs before those that are measured."""
START_S, END_S = 60, 10


def entries(system: System) -> list[Setup]:
    return [setup for setup in system.setups if setup.is_lead or setup.is_default]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    count = int(stage.scale.pick_up_s * RATE)
    with stage.turn(system, setup) as played, played.worker() as worker:
        played.run("fill", "stamp", WARM)
        entries = played.ledger.entries
        if not wait_until(lambda: len(entries()) >= WARM, START_S):
            raise Failed(f"no job began within {START_S} s: {worker.said}")
        warm = len(entries())
        committed = played.run("pace", "stamp", RATE, count)
        wait_until(lambda: len(entries()) >= warm + count, END_S)
        began: dict[int, float] = {}
        for entry in entries()[warm:]:
            began.setdefault(entry.n, entry.at)
    waits = [1e3 * max(0.0, began[n] - at) for n, at in enumerate(committed) if n in began]
    late = count - len(waits)
    note = f"{count:,} jobs" + (f", {late:,} NOT BEGUN {END_S} s after the last" if late else "")
    if not waits:
        raise Failed(f"no job began within {END_S} s after the last")
    for share in (0.5, 0.99):
        value = percentile(waits, share)
        yield Measured(what=f"p{share * 100:g}", value=value, unit="ms", better="less", note=note)
