"""What one lane and one rate limit carry, beside no-op jobs without either.

doctor.md cites the figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from bench.app import LIMIT_KEYS
from bench.figures import Figure
from bench.process import WorkerProcess
from bench.scale import Scale
from bench.server import DurableServer

PART = "one_key"
LANE_SHARE, LIMIT_SHARE = 100, 5
"""A lane and a limit are drained with so many times fewer jobs."""
LANE_WORKERS = 8
PACES = (1_000, 8_000)
"""Starts a second of a limit."""
PACE_SHARE = 0.8
"""How much of it a backlog uses at least; a burst of a tenth leaves it nine tenths."""
AHEAD_S = 2.0
LOOK_S = 0.02
WITHIN_S = 120
INSERT = """
insert into rota.job (queue, priority, job_type, payload, run_at, group_key, meta)
select
  'default', 0, %(job_type)s, jsonb_build_object('n', n), now() + %(ahead_s)s * interval '1 s',
  'lane:' || n %% %(lanes)s::int,
  case when %(keys)s > 0
    then jsonb_build_object('rota.asks', jsonb_build_object('limit', n %% %(keys)s)) end
from generate_series(1, %(jobs)s) n
"""


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Drain jobs of one lane, and of one rate limit whose jobs do not or do wait for it."""
    lane = {"jobs": scale.jobs // LANE_SHARE, "lanes": 1}
    limit = {"jobs": scale.jobs // LIMIT_SHARE}
    plain = _measure_rate(server, **limit)
    yield Figure(part=PART, name="one worker, no lane or limit", value=plain, unit="jobs/s")
    shapes: dict[str, dict[str, Any]] = {
        "one lane, one worker": lane,
        f"one lane, {LANE_WORKERS} workers": lane | {"workers": LANE_WORKERS},
        "10 lanes, one worker": lane | {"lanes": 10},
        "one limit that no job waits for": limit | {"job_type": "limited"},
        f"the same with {LIMIT_KEYS:,} keys": limit
        | {"job_type": "limited_by_key", "keys": LIMIT_KEYS},
        **{f"one limit of {pace:,} a second": limit | {"pace": pace} for pace in PACES},
    }
    for name, shape in shapes.items():
        rate = _measure_rate(server, **shape)
        note = f"{shape['jobs']:,} jobs, {100 * rate / plain:.0f} % of those without"
        pace = shape.get("pace")
        least = None if pace is None else PACE_SHARE * pace
        yield Figure(part=PART, name=name, value=rate, unit="jobs/s", at_least=least, note=note)


def _measure_rate(
    server: DurableServer, jobs: int, workers: int = 1, *, pace: int | None = None, **shape: Any
) -> float:
    """Return the jobs a second that worker processes do."""
    with (
        server.database() as url,
        ExitStack() as stack,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        running = [stack.enter_context(WorkerProcess(url, "run")) for _ in range(workers)]
        if pace is not None:
            shape["job_type"] = "limited"
            connection.execute(
                "select rota.limit_set('of_all', %s, p_burst => %s)", [pace, pace // 10]
            )
        began = _insert(connection, jobs, **shape)
        while _is_left(connection):
            if time.perf_counter() - began > WITHIN_S:
                raise RuntimeError(f"{jobs:,} jobs were not done within {WITHIN_S} s")
            time.sleep(LOOK_S)
        took_s = time.perf_counter() - began
        for worker in running:
            worker.stop()
    return jobs / took_s


def _insert(
    connection: psycopg.Connection,
    jobs: int,
    job_type: str = "noop",
    lanes: int | None = None,
    keys: int = 0,
) -> float:
    """Insert jobs that become due at the same moment a little later; wait for it and return it."""
    due_at = time.perf_counter() + AHEAD_S
    asked = {"job_type": job_type, "ahead_s": AHEAD_S, "lanes": lanes, "keys": keys, "jobs": jobs}
    connection.execute(INSERT, asked)
    time.sleep(max(0.0, due_at - time.perf_counter()))
    return due_at


def _is_left(connection: psycopg.Connection) -> bool:
    return connection.execute("select from rota.job limit 1").fetchone() is not None
