"""A queue full of no-op jobs, drained by one worker process with history kept.

It takes turns with pgbench and graphile-worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psycopg

from bench.figures import Figure
from bench.peers import CLAIM, CLIENTS, DRAIN_S, Drained, Graphile, Pgbench, count_finished
from bench.process import SLOTS, WorkerProcess
from bench.producer import fill
from bench.scale import Scale
from bench.server import DurableServer

PART = "drain"


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Drain in turns, so that other load on the machine affects all; ratios are within a round."""
    pgbench, graphile = Pgbench(server, place), Graphile.install(place)
    turns: dict[str, Callable[[], Drained]] = {
        "Rota": lambda: drain_all(server, scale.jobs),
        Pgbench.name: lambda: _check(scale.jobs, _pgbench(server, pgbench, scale.jobs)),
    }
    if graphile is not None:
        turns[Graphile.name] = lambda: _check(scale.jobs, _graphile(server, graphile, scale.jobs))
    drained: dict[str, list[Drained]] = {name: [] for name in turns}
    for _ in range(scale.rounds):
        for name, turn in turns.items():
            drained[name].append(turn())
    yield from _figures(drained, scale)
    if graphile is not None:
        yield _ratio(
            drained,
            Graphile.name,
            "× graphile-worker",
            "×",
            1.35 if sys.version_info < (3, 12) else 1.5,
            1,
            f"{Graphile.name} {graphile.version}",
        )
    yield _ratio(
        drained,
        Pgbench.name,
        "of pgbench",
        "%",
        54 if sys.version_info < (3, 12) else 60,
        100,
        f"{CLIENTS} clients, {CLAIM} a claim",
    )


def _figures(drained: dict[str, list[Drained]], scale: Scale) -> Iterator[Figure]:
    for name, runs in drained.items():
        speeds = [run.per_second for run in runs]
        note = f"median of {len(runs)} × {scale.jobs:,}, {min(speeds):,.0f} … {max(speeds):,.0f}"
        note += f", {SLOTS} slots" if name == "Rota" else ""
        detail = {"per_second": speeds, "client_cpu_s": [run.cpu_s for run in runs]}
        yield Figure(
            part=PART,
            name=f"{name}, no-op jobs",
            value=median(speeds),
            unit="jobs/s",
            note=note,
            detail=detail,
        )


def _ratio(
    drained: dict[str, list[Drained]],
    peer: str,
    name: str,
    unit: str,
    least: float,
    times: int,
    note: str,
) -> Figure:
    ratios = [
        times * own.per_second / other.per_second
        for own, other in zip(drained["Rota"], drained[peer], strict=True)
    ]
    return Figure(
        part=PART,
        name=f"Rota, {name}",
        value=median(ratios),
        unit=unit,
        at_least=least,
        note=note,
        detail={"by_round": ratios},
    )


def drain_all(server: DurableServer, jobs: int) -> Drained:
    """Let a worker process drain so many plain jobs."""
    with server.database() as url:
        _fill(url, jobs)
        with WorkerProcess(url, "drain") as worker:
            summary = worker.finish(DRAIN_S)
        return _check(jobs, Drained(count_finished(url), summary.took_s, summary.cpu_s))


def _pgbench(server: DurableServer, pgbench: Pgbench, jobs: int) -> Drained:
    with server.database() as url:
        _fill(url, jobs)
        return pgbench.drain(url, jobs)


def _graphile(server: DurableServer, graphile: Graphile, jobs: int) -> Drained:
    with server.database(migrated=False) as url:
        graphile.fill(url, jobs)
        return graphile.drain(url, jobs)


def _fill(url: str, jobs: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, "noop", jobs)


def _check(jobs: int, drained: Drained) -> Drained:
    if drained.jobs != jobs:
        raise RuntimeError(f"{drained.jobs:,} of {jobs:,} jobs were committed as done: not a drain")
    return drained
