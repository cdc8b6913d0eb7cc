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
from bench.graphile import Graphile
from bench.pgbench import CLAIM, CLIENTS, DRAIN_S, Drained, Pgbench, count_finished
from bench.process import SLOTS, WorkerProcess
from bench.producer import fill
from bench.scale import Scale
from bench.server import DurableServer

PART = "drain"
OWN, CHUNKED = "Rota", "Rota, 100 jobs a call"


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Drain in turns, so that other load on the machine affects all; ratios are within a round."""
    pgbench, graphile = Pgbench(server, place), Graphile.install()
    turns: dict[str, Callable[[], Drained]] = {
        OWN: lambda: drain_all(server, scale.jobs),
        CHUNKED: lambda: drain_all(server, scale.jobs, "many"),
        Pgbench.name: lambda: _check(scale.jobs, _pgbench(server, pgbench, scale.jobs)),
    }
    if graphile is not None:
        turns[Graphile.name] = lambda: _check(scale.jobs, _graphile(server, graphile, scale.jobs))
    drained: dict[str, list[Drained]] = {name: [] for name in turns}
    for _ in range(scale.rounds):
        for name, turn in turns.items():
            drained[name].append(turn())
    yield from _figures(drained, scale)
    is_old = sys.version_info < (3, 12)
    if graphile is not None:
        note = f"{Graphile.name} {graphile.version}"
        for name, least in ((OWN, 1.35 if is_old else 1.5), (CHUNKED, 2.0)):
            yield _ratio(drained, name, Graphile.name, "× graphile-worker", "×", least, 1, note)
    note = f"{CLIENTS} clients, {CLAIM} a claim"
    for name, least in ((OWN, 52 if is_old else 60), (CHUNKED, 75)):
        yield _ratio(drained, name, Pgbench.name, "of pgbench", "%", least, 100, note)


def _figures(drained: dict[str, list[Drained]], scale: Scale) -> Iterator[Figure]:
    for name, runs in drained.items():
        speeds = [run.per_second for run in runs]
        note = f"median of {len(runs)} × {scale.jobs:,}, best {max(speeds):,.0f}"
        note += f", {SLOTS} slots" if name in (OWN, CHUNKED) else ""
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
    whose: str,
    peer: str,
    name: str,
    unit: str,
    least: float,
    times: int,
    note: str,
) -> Figure:
    ratios = [
        times * own.per_second / other.per_second
        for own, other in zip(drained[whose], drained[peer], strict=True)
    ]
    return Figure(
        part=PART,
        name=f"{whose}, {name}",
        value=median(ratios),
        unit=unit,
        at_least=least,
        note=f"{note}; best against best {_best(drained, whose, peer) * times:.3g}",
        detail={"by_round": ratios},
    )


def _best(drained: dict[str, list[Drained]], whose: str, peer: str) -> float:
    """Return how the best turn of one side compares with the best of the other."""
    own, other = (max(run.per_second for run in drained[name]) for name in (whose, peer))
    return own / other


def drain_all(server: DurableServer, jobs: int, job_type: str = "noop") -> Drained:
    """Let a worker process drain so many jobs of a type."""
    with server.database() as url:
        _fill(url, jobs, job_type)
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


def _fill(url: str, jobs: int, job_type: str = "noop") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, job_type, jobs)


def _check(jobs: int, drained: Drained) -> Drained:
    if drained.jobs != jobs:
        raise RuntimeError(f"{drained.jobs:,} of {jobs:,} jobs were committed as done: not a drain")
    return drained
