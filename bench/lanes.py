"""What lanes cost: a queue full of no-op jobs, drained by one worker process, plain and in lanes.

Also what one lane does alone, and how soon another tenant's single job starts beside one of many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psycopg

from bench.drain import drain_all
from bench.figures import Figure
from bench.pgbench import DRAIN_S, Drained, count_finished
from bench.process import WorkerProcess
from bench.producer import BATCH
from bench.scale import Scale
from bench.server import DurableServer

PART = "lanes"
SHAPES = {"lanes of one": (1, 50), "lanes of 10": (10, 50), "lanes of 100": (100, 50)}
"""Jobs in each lane, and the share of a plain drain to reach. Those of a lane are far apart, as
when many tenants enqueue at once. No more jobs run at once than there are lanes, and a job that
waits for its lane costs two more row versions."""
SINGLE = 20
"""One lane alone is drained with so many times fewer jobs."""
INSERT = """
insert into rota.job (queue, job_type, payload, priority, group_key)
select 'default', 'noop', jsonb_build_object('n', g), 0, 'lane:' || g %% %s::int
from generate_series(%s::int, %s::int) g
"""


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Drain in turns, so that other load on the machine affects all; ratios are within a round."""
    jobs = scale.jobs // 2
    plain: list[Drained] = []
    laned: dict[str, list[Drained]] = {name: [] for name in SHAPES}
    for _ in range(scale.rounds):
        plain.append(drain_all(server, jobs))
        for name, (each, _) in SHAPES.items():
            laned[name].append(_drain(server, jobs, jobs // each))
    for name, runs in laned.items():
        ratios = [
            100 * own.per_second / other.per_second for own, other in zip(runs, plain, strict=True)
        ]
        yield Figure(
            part=PART,
            name=f"{name}, of a plain drain",
            value=median(ratios),
            unit="%",
            at_least=SHAPES[name][1],
            note=f"median of {len(runs)} × {jobs:,}, "
            f"{median(run.per_second for run in runs):,.0f} jobs/s",
            detail={"by_round": ratios},
        )
    alone = _drain(server, jobs // SINGLE, 1)
    yield Figure(
        part=PART,
        name="one lane alone",
        value=alone.per_second,
        unit="jobs/s",
        at_least=1_000,
        note=f"{alone.jobs:,} jobs, each after the one before",
    )
    yield Figure(
        part=PART,
        name="a tenant's one job beside another's many",
        value=_wait_beside(server, jobs),
        unit="s",
        at_most=1.0,
        note=f"from the worker's first claim to its start, behind {jobs:,} jobs of one lane",
    )


def _drain(server: DurableServer, jobs: int, lanes: int) -> Drained:
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            _fill(connection, jobs, lanes)
        with WorkerProcess(url, "drain") as worker:
            summary = worker.finish(DRAIN_S)
        done = Drained(count_finished(url), summary.took_s, summary.cpu_s)
        if done.jobs != jobs:
            raise RuntimeError(f"{done.jobs:,} of {jobs:,} jobs in {lanes:,} lanes were done")
        return done


def _wait_beside(server: DurableServer, jobs: int) -> float:
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        _fill(connection, jobs, 1)
        [(single,)] = connection.execute(
            "insert into rota.job (queue, job_type, payload, priority, group_key) "
            "values ('default', 'noop', '{\"n\": 0}', 0, 'another') returning id"
        ).fetchall()
        with WorkerProcess(url, "run") as worker:
            while not (row := _read_start(connection, single)):
                pass
            worker.stop()
        return row[0]


def _read_start(connection: psycopg.Connection, job: int) -> tuple[float] | None:
    return connection.execute(
        "select extract(epoch from h.started_at - (select min(o.started_at) "
        "from rota.job_history o))::float8 from rota.job_history h where h.id = %s",
        [job],
    ).fetchone()


def _fill(connection: psycopg.Connection, jobs: int, lanes: int) -> None:
    for first in range(0, jobs, BATCH):
        connection.execute(INSERT, [lanes, first, min(first + BATCH, jobs) - 1])
    connection.execute("vacuum (analyze) rota.job")
