"""Searches and figures beside a fortnight of history, and the cost of the roll-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

import rota
from bench.figures import Figure, percentile, readable
from bench.scale import Scale
from bench.server import DurableServer, value
from rota.dashboard import Access, dashboard
from rota.store import ops
from rota.store.db import Database
from tests.support.history import DAYS, fill

PART = "search"
TRIES = 5
SEARCHES: dict[str, dict[str, Any]] = {
    "the newest": {},
    "a frequent type": {"job_type": "type_7"},
    "a rare type": {"job_type": "rare"},
    "a type that is not there": {"job_type": "nothing"},
    "a queue": {"queue": "queue_3"},
    "a rare status": {"status": "cancelled"},
    "the dead": {"status": "dead"},
    "class of an error": {"error_type": "PartnerError"},
    "text of an error": {"error": "PARTNER 777 does not"},
    "text of an error, of a status": {"error": "refused", "status": "cancelled"},
    "an hour of yesterday": {"since": "26h", "until": "25h"},
}
ROLLED_UP_H = 25
PAGES = (
    "/", "/jobs", "/jobs?status=succeeded", "/jobs?job_type=rare&since=2d",
    "/jobs?error=PARTNER 777 does not", "/dead", "/errors", "/many/archive?status=dead", "/queues",
    "/schedules", "/workers", "/types", "/batches", "/groups", "/limits", "/breakers", "/effects",
    "/statistics", "/statistics?hours=336", "/log", "/alerts", "/doctor",
)  # fmt: skip
REFRESHES = 24
REFRESH_S = 5.0
"""An open overview looks again so often."""


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the median and the maximum of a few tries each, through the Python client.

    The first try finds in memory what the one before left there.
    """
    with (
        server.database() as url,
        closing(rota.App(url)) as app,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        fill(connection, scale.search_rows)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
        key = value(
            connection,
            "select idempotency_key from rota.job_history where idempotency_key is not null order "
            "by id limit 1",
        )
        for name, wanted in {**SEARCHES, "a key of long ago": {"key": key}}.items():
            search = partial(app.find, limit=20, **wanted)
            yield _time(name, search, scale, at_most=1_000)
        yield from _roll_up(server, connection, app._database, scale)
        yield _time("stats of a day", app.queues.stats, scale, at_most=100)
        old = value(
            connection, "select id from rota.job_history where attempts > 1 order by id limit 1"
        )
        yield _time(
            "the timeline of a job of long ago",
            lambda: app.jobs.timeline(old),
            scale,
            at_most=1_000,
        )
        yield from _pages(server, app, (*PAGES, f"/jobs/{old}"), scale)


def _pages(
    server: DurableServer, app: rota.App, paths: Sequence[str], scale: Scale
) -> Iterator[Figure]:
    """Each page of the dashboard, and what an open overview costs the server."""
    pages = dashboard(app, authorize=lambda _: Access("bench"))

    def get(path: str) -> None:
        path, _, query = path.partition("?")
        said: list[str] = []
        asked = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
        pages.wsgi(asked, lambda status, _: said.append(status))
        if said != ["200 OK"]:
            raise RuntimeError(f"{path}?{query}: {said}")

    for path in paths:
        yield _time(f"page {path}", partial(get, path), scale, at_most=300)
    before = server.cpu_s()
    for _ in range(REFRESHES):
        get("/")
    spent_s = server.cpu_s() - before
    yield Figure(
        part=PART,
        name="an open overview, of a core of the server",
        value=100 * spent_s / (REFRESHES * REFRESH_S),
        unit="%",
        at_most=1,
        note=f"{readable(1000 * spent_s / REFRESHES)} ms each {REFRESH_S:g} s",
    )


def _time(name: str, ask: Callable[[], Any], scale: Scale, *, at_most: float) -> Figure:
    took_ms = []
    for _ in range(TRIES):
        began = time.perf_counter()
        ask()
        took_ms.append((time.perf_counter() - began) * 1000)
    note = (
        f"{readable(scale.search_rows)} rows over {DAYS} days; longest of {TRIES}: "
        f"{readable(max(took_ms))} ms"
    )
    return Figure(
        part=PART,
        name=name,
        value=percentile(took_ms, 0.5),
        unit="ms",
        at_most=at_most,
        note=note,
        detail={"took_ms": took_ms},
    )


def _roll_up(
    server: DurableServer, connection: psycopg.Connection, database: Database, scale: Scale
) -> Iterator[Figure]:
    """Whole hours, as they are counted when they are over."""
    connection.execute(
        "update rota.stat_rollup set complete_to = date_trunc('hour', rota.clock(), 'UTC') - "
        "make_interval(hours => %s)",
        [ROLLED_UP_H],
    )
    at, cpu_s, turns_s = value(connection, "select pg_current_wal_insert_lsn()"), server.cpu_s(), []
    more = True
    while more:
        began = time.perf_counter()
        more = database.run(ops.roll_up_stats(), connection)
        turns_s.append(time.perf_counter() - began)
    spent_s = server.cpu_s() - cpu_s
    wal = value(connection, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::float8", at)
    jobs = value(connection, "select sum(succeeded + dead + cancelled)::float8 from rota.stat_hour")
    note = (
        f"{readable(jobs)} jobs of {ROLLED_UP_H} h; "
        f"the longest hour {readable(max(turns_s) * 1000)} ms"
    )
    yield Figure(
        part=PART,
        name="CPU of a roll-up",
        value=spent_s / jobs * 1e6,
        unit="µs/job",
        note=note,
        detail={"turns_s": turns_s},
    )
    yield Figure(part=PART, name="WAL of a roll-up", value=wal / jobs, unit="B/job", note=note)
    connection.execute(
        "update rota.stat_rollup set complete_to = complete_to - interval '1 minute'"
    )
    began = time.perf_counter()
    database.run(ops.roll_up_stats(), connection)
    yield Figure(
        part=PART,
        name="roll-up of a minute",
        value=(time.perf_counter() - began) * 1000,
        unit="ms",
        note="the end of today's rows",
    )
