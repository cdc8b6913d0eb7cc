"""A steady rate of 2,000 jobs a second: what it costs, and how soon a job starts.

One process enqueues 100 jobs in one call, twenty times a second, and one worker runs them. The
first seconds are not measured; a system that is behind by a second or more after them is not
measured further, and the note says how far it came. The p99 is from the commit of a call to the
start of each of its jobs. The CPU is of the worker and the enqueuing process, and of the whole
server; the growth is of the whole database, and of the memory of Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import percentile
from bench.peers.ledger import LedgerFile
from bench.peers.played import Failed, Played, Worker
from bench.peers.result import Measured
from bench.peers.stage import Stage, wait_until
from bench.peers.system import Setup, System

NAME = "steady"
ROUNDS_MAX = 1
TOGETHER = 1
WARM = 20
WARM_UP_S = 5.0
START_S, END_S = 60, 20
BEHIND_S = 1.0
FIGURES = {
    "p99, from enqueue to start": "ms",
    "CPU of worker and producer": "s/1,000 jobs",
    "CPU of the server": "s/1,000 jobs",
    "log ahead of the data (WAL)": "bytes/job",
    "growth": "kB/1,000 jobs",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What has been used until an instant."""

    client_s: float
    server_s: float
    written: int | None
    size: int


def entries(system: System) -> list[Setup]:
    return [system.lead]


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    rate, for_s = stage.scale.steady_rate, stage.scale.steady_s
    with stage.turn(system, setup) as played, played.worker() as worker:
        played.run("fill", "stamp", WARM)
        if not wait_until(lambda: len(played.ledger.entries()) >= WARM, START_S):
            raise Failed(f"the first jobs did not begin within {START_S} s: {worker.said}")
        warm_s = min(WARM_UP_S, for_s)
        first = WARM + int(rate * warm_s)
        produced = played.run("steady", "stamp", rate, warm_s, WARM)
        begun = _count_begun(played.ledger, WARM, first)
        if first - WARM - begun > BEHIND_S * rate or produced["took_s"] > warm_s + BEHIND_S:
            yield from _give_up(begun, produced["took_s"])
            return
        before = _look(played, worker)
        produced = played.run("steady", "stamp", rate, for_s, first, within_s=3 * for_s + START_S)
        made = sum(count for _, count, _ in produced["calls"])
        begun = _count_begun(played.ledger, first, first + made)
        wait_until(lambda: _count_begun(played.ledger, first, first + made) >= made, END_S, 0.1)
        after = _look(played, worker)
        waits = _find_waits(played.ledger, produced["calls"])
    behind = made - begun
    kept_up = behind <= BEHIND_S * rate and produced["took_s"] <= for_s + BEHIND_S
    note = "kept up" if kept_up else f"did NOT keep up: {behind:,} jobs behind at the end"
    speed = begun / produced["took_s"]
    yield Measured(what="jobs begun", value=speed, unit="jobs/s", better="more", note=note)
    client_s = after.client_s - before.client_s + produced["cpu_s"]
    written = None
    if after.written is not None and before.written is not None:
        written = (after.written - before.written) / made
    values = (
        percentile(waits, 0.99) if len(waits) == made else None,
        1e3 * client_s / made,
        1e3 * (after.server_s - before.server_s) / made,
        written,
        (after.size - before.size) / made,
    )
    lost = made - len(waits)
    late = f"{lost:,} jobs had NOT begun {END_S} s after the last" if lost else ""
    for (what, unit), value in zip(FIGURES.items(), values, strict=True):
        yield Measured(what=what, value=value, unit=unit, better="less", note=late)


def _give_up(begun: int, took_s: float) -> Iterator[Measured]:
    note = f"did NOT keep up in the first {took_s:.0f} s"
    yield Measured(what="jobs begun", value=begun / took_s, unit="jobs/s", better="more", note=note)
    for what, unit in FIGURES.items():
        yield Measured(what=what, value=None, unit=unit, better="less", note=note)


def _look(played: Played, worker: Worker) -> Cost:
    store = played.store
    return Cost(worker.cpu_s(), store.cpu_s(), store.log_bytes(), store.size_bytes())


def _count_begun(ledger: LedgerFile, first: int, end: int) -> int:
    return len({entry.n for entry in ledger.entries() if first <= entry.n < end})


def _find_waits(ledger: LedgerFile, calls: list[tuple[int, int, float]]) -> list[float]:
    """Return the milliseconds from the commit of each job's call to its first start."""
    began: dict[int, float] = {}
    for entry in ledger.entries():
        began.setdefault(entry.n, entry.at)
    return [
        1e3 * max(0.0, began[n] - at)
        for first, count, at in calls
        for n in range(first, first + count)
        if n in began
    ]
