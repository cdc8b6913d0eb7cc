"""The same drain with a million jobs waiting, for as long as a drain is measured.

One job is enqueued by the system's own call and its row copied, or, where its tables are not so
simple, all are enqueued in bulk: the note says which. The second bar is the drain of few jobs.
Redis does not take part: its queues are lists, whose length does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.peers.played import Played
from bench.peers.result import Measured
from bench.peers.scenarios import drain
from bench.peers.stage import Stage
from bench.peers.store import Database
from bench.peers.system import Setup, System

NAME = "backlog"
ROUNDS_MAX = 1
TOGETHER = 1
FILL_S = 300


def entries(system: System) -> list[Setup]:
    return [system.lead] if system.kept == "postgresql" else []


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    jobs = stage.scale.backlog_jobs
    with stage.turn(system, setup) as played:
        how = _fill(played, jobs)
        drained = drain.drain(played, jobs, stage.scale.drain_s)
    yield from drain.describe(drained, jobs, f"; {how}")


def _fill(played: Played, jobs: int) -> str:
    """Make them wait; return how."""
    if not played.system.copied or not isinstance(played.store, Database):
        played.run("fill", "noop", jobs, within_s=FILL_S)
        return "enqueued in bulk"
    played.run("fill", "noop", 1)
    for rows in played.system.copied:
        played.store.multiply(rows, jobs)
    return f"copies of a row of {' and of '.join(rows.table for rows in played.system.copied)}"
