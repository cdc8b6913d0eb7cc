"""No-op jobs that are members of batches, drained by one worker process in turns with plain ones.

Also how soon what follows a batch is enqueued, and how long it takes to read how far one is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psycopg

import rota
from bench.app import declare
from bench.drain import drain_all
from bench.figures import Figure, percentile
from bench.pgbench import DRAIN_S, Drained, count_finished
from bench.process import WorkerProcess
from bench.producer import BATCH
from bench.scale import Scale
from bench.server import DurableServer, value
from rota.store.ops.fan_out import FOLD_MAX

PART = "batches"
SMALL = 200
"""Members of a batch of which there are many."""
READ = 100_000
"""Members of the batch that is read."""
READ_EVERY_S = 0.01
THEN = '{"ended": {"job_type": "stamped", "payload": {"n": 0}}}'
OPEN = """
insert into public.opened
select n, rota.batch_open(%s, 'continue', null) from generate_series(0, %s::int - 1) n
"""
INSERT = """
with member as (
  insert into rota.job (queue, job_type, payload, priority, batch)
  select 'default', 'noop', jsonb_build_object('n', g), 0, o.batch
  from generate_series(%s::int, %s::int) g
  join public.opened o on o.n = case when %s then g %% %s::int else g / %s::int end
  returning id, batch
)
insert into public.member select batch, id from member
"""
ADD = "select rota.batch_add(m.batch, array_agg(m.id)) from public.member m group by m.batch"


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Drain in turns, so that other load on the machine affects all; ratios are within a round."""
    jobs = scale.jobs
    many = jobs // SMALL
    shapes: dict[str, tuple[int, bool, float | None]] = {
        "one batch": (1, False, 95),
        f"{many:,} batches": (many, False, 83),
        f"{many:,} batches, mixed": (many, True, None),
        "a batch each": (jobs, True, None),
    }
    plain: list[Drained] = []
    followed: dict[str, list[Drained]] = {name: [] for name in shapes}
    for _round in range(scale.rounds):
        plain.append(drain_all(server, jobs))
        for name, (count, mixed, _least) in shapes.items():
            followed[name].append(_drain(server, jobs, count, mixed=mixed))
    for name, runs in followed.items():
        ratios = [
            100 * own.per_second / other.per_second for own, other in zip(runs, plain, strict=True)
        ]
        yield Figure(
            part=PART,
            name=f"members of {name}, of a plain drain",
            value=median(ratios),
            unit="%",
            at_least=shapes[name][2],
            note=f"median of {len(runs)} × {jobs:,}, "
            f"{median(run.per_second for run in runs):,.0f} jobs/s",
            detail={"by_round": ratios},
        )
    yield _enqueue(jobs, scale.rounds, server)
    for name, count in (("one batch", 1), (f"{many:,} batches", many)):
        yield _follow(server, jobs, name, count)
    yield _read(server)
    yield _count(server, jobs, many)


def _drain(server: DurableServer, jobs: int, batches: int, *, mixed: bool) -> Drained:
    with server.database() as url:
        _fill(url, jobs, batches, mixed=mixed)
        with WorkerProcess(url, "drain") as worker:
            summary = worker.finish(DRAIN_S)
        done = Drained(count_finished(url), summary.took_s, summary.cpu_s)
        with psycopg.connect(url) as connection:
            ended = value(connection, "select count(*) from rota.batch where succeeded = total")
        if (done.jobs, ended) != (jobs, batches):
            raise RuntimeError(f"{done.jobs:,} of {jobs:,} jobs, {ended:,} of {batches:,} batches")
        return done


def _enqueue(jobs: int, rounds: int, server: DurableServer) -> Figure:
    """Enqueue as one batch, in turns with as many plain jobs."""
    ratios = []
    names = ["enqueue_many", "batch"]
    for _ in range(rounds):
        took = {}
        names.reverse()  # whoever comes second may find a server that is busy with the first
        for name in names:
            types = declare()
            with server.database() as url:
                app = rota.App(url, jobs=[types.jobs])
                new = [types.noop.new(n=n) for n in range(jobs)]
                enqueue: Callable[[list[rota.records.NewJob]], object] = getattr(app, name)
                began = time.perf_counter()
                enqueue(new)
                took[name] = time.perf_counter() - began
                app.close()
        ratios.append(100 * took["enqueue_many"] / took["batch"])
    return Figure(
        part=PART,
        name="app.batch, of the speed of enqueue_many",
        value=median(ratios),
        unit="%",
        note=f"median of {rounds} × {jobs:,} in one call",
        detail={"by_round": ratios},
    )


def _follow(server: DurableServer, jobs: int, name: str, batches: int) -> Figure:
    """From the last member's end until the job that follows is there."""
    with server.database() as url:
        _fill(url, jobs, batches, then=THEN)
        with WorkerProcess(url, "drain") as worker:
            worker.finish(DRAIN_S)
        with psycopg.connect(url) as connection:
            waits = [
                row[0]
                for row in connection.execute(
                    "select extract(epoch from b.then_at - max(h.finished_at))::float8 "
                    "from rota.batch b join rota.job_history h on h.batch = b.id group by b.id"
                ).fetchall()
            ]
    if len(waits) != batches or None in waits:
        raise RuntimeError(f"of {batches:,} batches not all were followed")
    return Figure(
        part=PART,
        name=f"{name}: from the last member's end to what follows",
        value=max(waits),
        unit="s",
        at_most=0.5,
        note=f"the longest of {batches:,}; median {median(waits):.3f} s",
    )


def _read(server: DurableServer) -> Figure:
    """Read how far a batch is, again and again, while its members run."""
    took: list[float] = []
    live = READ
    with server.database() as url:
        _fill(url, READ, 1)
        app = rota.App(url)
        with WorkerProcess(url, "drain") as worker:
            while live:
                began = time.perf_counter()
                [read] = app.batches.list(limit=1)
                took.append(time.perf_counter() - began)
                live = read.live
                time.sleep(READ_EVERY_S)
            worker.finish(DRAIN_S)
        app.close()
    return Figure(
        part=PART,
        name="read a batch while its members run",
        value=1_000 * percentile(took[1:], 0.99),
        unit="ms",
        at_most=50,
        note=f"p99 of {len(took) - 1:,}, {READ:,} members; median {1_000 * median(took):.1f} ms",
    )


def _count(server: DurableServer, jobs: int, batches: int) -> Figure:
    """Count what came to batches, one row for each job: the most that a finish can append."""
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into rota.batch (total, on_failure) select %s + 1, 'continue' "
            "from generate_series(1, %s)",
            [jobs, batches],
        )
        connection.execute(
            "insert into rota.batch_delta (batch, succeeded) select 1 + n %% %s::int, 1 "
            "from generate_series(1, %s::int) n",
            [batches, jobs],
        )
        connection.execute("vacuum (analyze) rota.batch, rota.batch_delta")
        began = time.perf_counter()
        while value(connection, "select rota.batches_fold(%s)", FOLD_MAX):
            pass
        took_s = time.perf_counter() - began
        if value(connection, "select sum(succeeded) from rota.batch") != jobs:
            raise RuntimeError("not all changes were counted")
    return Figure(
        part=PART,
        name=f"changes of {batches:,} batches that one worker counts",
        value=jobs / took_s,
        unit="/s",
    )


def _fill(
    url: str, jobs: int, batches: int, *, mixed: bool = False, then: str | None = None
) -> None:
    """Insert members, 1,000 a statement: one batch after the other, or mixed, as when many are
    under way at once."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table public.opened (n int primary key, batch bigint)")
        connection.execute("create table public.member (batch bigint, id bigint)")
        with connection.transaction():
            connection.execute(OPEN, [then, batches])
            for first in range(0, jobs, BATCH):
                last = min(first + BATCH, jobs) - 1
                connection.execute(INSERT, [first, last, mixed, batches, -(-jobs // batches)])
            connection.execute(ADD)
        connection.execute("vacuum (analyze) rota.job, rota.batch, rota.batch_delta")
