"""A million jobs that no worker can take now, or that are all due at once.

It measures claims and a worker beside them, in turns with a table without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import LiteralString

import psycopg

from bench.figures import Figure, percentile, readable
from bench.pgbench import DRAIN_S
from bench.process import WorkerProcess
from bench.scale import Scale
from bench.server import DurableServer, value
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import drive
from rota.store.drivers.psycopg3 import PsycopgDriver

PART = "spike"
CLAIM = 100
MOST = 120.0
"""Percent of the time without the spike: a spike may cost 20 %."""
LEAST = 100 / 1.2
LOOK_S = 0.1
EMPTY = 5
"""Claims that find nothing for each that finds a job: they are that much quicker."""
SHARE = 0.25
"""The lower quartile of claim times: other load on the machine only ever adds to them."""
WHO = ops.Claimant("bench", "1", ["noop"], [timedelta(minutes=10)], [False])
FIRST, LAST = 0.2, 0.9
"""A worker is measured between these shares of its jobs: without its start, which searches
everything."""
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
SPIKES: dict[str, LiteralString] = {
    "due at once": """
insert into rota.job (queue, job_type, payload, priority, run_at)
select 'default', 'noop', jsonb_build_object('n', g), 0, rota.clock()
  from generate_series(1, %s::int) g""",
    "of an unknown type": """
insert into rota.job (queue, job_type, priority, run_at)
  select 'default', 'unknown', 0, rota.clock() from generate_series(1, %s::int)""",
    "dead": """
insert into rota.job (queue, job_type, priority, run_at, status)
  select 'default', 'noop', 0, rota.clock(), 'dead' from generate_series(1, %s::int)""",
    "in the future": """
insert into rota.job (queue, job_type, priority, run_at)
select 'default', 'noop', 0, rota.clock() + interval '1 day' from generate_series(1, %s::int)""",
}
WORK = """
insert into rota.job (queue, job_type, payload, priority)
select 'default', 'noop', jsonb_build_object('n', g), 0 from generate_series(1, %s::int) g"""


class Table:
    """A database with jobs to do, with a spike among them or without, and its measurements."""

    def __init__(self, server: DurableServer, url: str, connection: psycopg.Connection) -> None:
        self._server = server
        self._url = url
        self._connection = connection
        self._database = Database("")
        self._last = (BEGINNING, 0)
        self.first_ms = 0.0
        self.claim_ms: list[float] = []
        self.empty_ms: list[float] = []
        self.cpu_s = self.took_s = 0.0
        self.jobs = 0

    @classmethod
    @contextmanager
    def make(
        cls, server: DurableServer, scale: Scale, spike: LiteralString | None
    ) -> Iterator[Table]:
        """Fill a fresh database."""
        with (
            server.database() as url,
            psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection,
        ):
            if spike is not None:
                connection.execute(spike, [scale.spike_jobs])
            if spike != SPIKES["due at once"]:
                connection.execute(
                    WORK, [scale.spike_rounds * scale.spike_work + CLAIM * (scale.spike_claims + 1)]
                )
            connection.execute("vacuum (analyze) rota.job")
            connection.execute("checkpoint")
            yield cls(server, url, connection)

    def first(self) -> None:
        """Claim for the first time, which searches everything and plans the statement."""
        self.first_ms = self._claim(*self._last)

    def claim(self) -> None:
        """Claim ahead of the frontier."""
        self.claim_ms.append(self._claim(*self._last))

    def empty(self) -> None:
        """Claim when nothing is due."""
        self.empty_ms.append(self._claim(datetime.now(UTC), 0, finds=0))

    def work(self, jobs: int) -> None:
        """Let a worker run this many jobs."""
        before, seen = self._count_done(), list[tuple[float, float, int]]()
        with WorkerProcess(self._url, "run") as worker:
            gives_up_at = time.monotonic() + DRAIN_S
            for share in (FIRST, LAST):
                while (done := self._count_done() - before) < share * jobs:
                    if time.monotonic() > gives_up_at:
                        raise RuntimeError(f"{done:,} of {jobs:,} jobs after {DRAIN_S} s")
                    time.sleep(LOOK_S)
                seen.append((time.perf_counter(), self._server.cpu_s(0) + worker.cpu_s(), done))
            worker.stop()
        (began, began_cpu, first), (ended, ended_cpu, last) = seen
        self.took_s += ended - began
        self.cpu_s += ended_cpu - began_cpu
        self.jobs += last - first

    def _count_done(self) -> int:
        return int(value(self._connection, "select count(*) from rota.job_history"))

    def _claim(self, run_at: datetime, id_: int, *, finds: int = CLAIM) -> float:
        branches = ops.Branches(
            [CLAIM], [CLAIM], [1], [0], [1], ["default"], [0], [run_at], [id_], [timedelta(0)]
        )
        began = time.perf_counter()
        claim = ops.claim(WHO, branches, {"default": BEGINNING}, None)
        jobs = drive(PsycopgDriver(self._connection), claim, self._database.statements).jobs
        took_ms = (time.perf_counter() - began) * 1e3
        if len(jobs) != finds:
            raise RuntimeError(f"a claim brought {len(jobs)} jobs, not {finds}")
        if jobs:
            self._last = (jobs[-1].run_at, jobs[-1].id)
        return took_ms


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Measure each spike beside a table without one, claim by claim and worker by worker.

    So other load on the machine affects both.
    """
    for name, spike in SPIKES.items():
        with Table.make(server, scale, None) as without, Table.make(server, scale, spike) as beside:
            for table in (without, beside):
                table.first()
            for step, turns in (
                (Table.claim, scale.spike_claims),
                (Table.empty, EMPTY * scale.spike_claims),
            ):
                for turn in range(turns):
                    for table in (without, beside) if turn % 2 else (beside, without):
                        step(table)
            for turn in range(scale.spike_rounds):
                for table in (without, beside) if turn % 2 else (beside, without):
                    table.work(scale.spike_work)
            yield from _figures(f"{scale.spike_jobs:,} {name}", beside, without)


def _figures(name: str, beside: Table, without: Table) -> Iterator[Figure]:
    def ratio(
        what: str,
        unit: str,
        value: Callable[[Table], float],
        more: str = "",
        *,
        is_speed: bool = False,
    ) -> Figure:
        own, other = value(beside), value(without)
        target = {"at_least": LEAST} if is_speed else {"at_most": MOST}
        note = f"{readable(own)} {unit}; without {readable(other)}{more}"
        return Figure(
            part=PART,
            name=f"{what}, {name}",
            value=100 * own / other,
            unit="%",
            note=note,
            **target,  # type: ignore[arg-type]
        )

    first = f"; the first, a look at everything, {readable(beside.first_ms)} ms"
    yield ratio("claim of 100", "ms", lambda table: percentile(table.claim_ms, SHARE), first)
    yield ratio("empty claim", "ms", lambda table: percentile(table.empty_ms, SHARE))
    yield ratio("CPU of a job", "µs", lambda table: 1e6 * table.cpu_s / table.jobs)
    yield ratio("jobs a second", "jobs/s", lambda table: table.jobs / table.took_s, is_speed=True)
