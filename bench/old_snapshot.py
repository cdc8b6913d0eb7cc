"""The same work while an old snapshot keeps vacuum from removing anything: at full speed, then
steady."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from statistics import mean

import psycopg

import rota
from bench.app import Progress, declare
from bench.figures import Figure, percentile, readable
from bench.process import WorkerProcess
from bench.producer import Producer
from bench.scale import Scale
from bench.server import DurableServer, value, with_options
from bench.statement_log import OPTIONS, Statement, StatementLog

PART = "old snapshot"
WARM_UP_S = 3
RATE = 20_000
"""Jobs a second of the steady part."""
PRODUCER_WAITS = 0.02
"""Below this share, the worker was waiting for the producer."""
LATE_S = 1.0
"""How long a late transaction stays open."""


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Run at full speed without and with the snapshot, then at a steady rate with it."""
    free = _full_speed(server, place, scale.without_s, snapshot=False)
    pinned = _full_speed(server, place, scale.snapshot_s, snapshot=True)
    for name, speed in (("full speed, without", free), ("full speed, with", pinned)):
        yield Figure(
            part=PART,
            name=name,
            value=speed.mean,
            unit="jobs/s",
            note=speed.note,
            detail={"by_second": speed.by_second},
        )
    whole, last = 100 * pinned.mean / free.mean, 100 * pinned.last_quarter / free.mean
    note = f"whole time {readable(whole)} %, last quarter {readable(last)} %; the lesser counts"
    yield Figure(
        part=PART, name="with, of without", value=min(whole, last), unit="%", at_least=80, note=note
    )
    yield from _steady_figures(_steady(server, place, scale.steady_s), scale)


@dataclass(frozen=True, slots=True)
class Speed:
    """Jobs committed in each second."""

    by_second: list[int]
    producer_waited: float
    """The share of the time in which the producer was far enough ahead of the worker."""

    @property
    def mean(self) -> float:
        return mean(self.by_second)

    @property
    def last_quarter(self) -> float:
        return mean(self.by_second[-(len(self.by_second) // 4) :])

    @property
    def note(self) -> str:
        limit = "" if self.producer_waited > PRODUCER_WAITS else "; the PRODUCER was the limit"
        return (
            f"over {len(self.by_second)} s, with a producer, which waited "
            f"{readable(100 * self.producer_waited)} % of the time{limit}"
        )


def _full_speed(server: DurableServer, place: Path, for_s: float, *, snapshot: bool) -> Speed:
    progress = _progress(place)
    with (
        server.database() as url,
        WorkerProcess(url, "run", progress=progress.path) as worker,
        Producer(url, lambda: progress.count) as producer,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        time.sleep(WARM_UP_S)
        with old_snapshot(url) if snapshot else nullcontext():
            began, paused_s = value(connection, "select clock_timestamp()"), producer.paused_s
            wait(for_s, producer)
            waited = (producer.paused_s - paused_s) / for_s
        worker.stop()
        rows = connection.execute(
            "select floor(extract(epoch from finished_at - %s))::int, count(*) from "
            "rota.job_history where status = 'succeeded' group by 1",
            [began],
        ).fetchall()
    by_second: dict[int, int] = dict(rows)
    return Speed([by_second.get(second, 0) for second in range(int(for_s))], waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The result of a steady time."""

    began: datetime
    rate: float
    """Jobs enqueued per second."""
    backlog: int
    paused_s: float
    claims: list[Statement]
    waits_s: list[float]
    """From each late commit to the start of its handler; infinite if it never started."""

    @property
    def kept_up(self) -> bool:
        return self.backlog < RATE and not self.paused_s


def _steady(server: DurableServer, place: Path, for_s: float) -> Steady:
    """Run at a steady rate.

    The server times the claims; late transactions are timed from commit to the start of the
    handler.
    """
    progress, log = _progress(place), StatementLog(server.log)
    with (
        server.database() as url,
        WorkerProcess(with_options(url, OPTIONS), "run", progress=progress.path) as worker,
        Producer(url, lambda: progress.count, RATE) as producer,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        time.sleep(WARM_UP_S)
        with old_snapshot(url):
            began, made = value(connection, "select clock_timestamp()"), producer.made
            committed = commit_late(url, for_s, producer, count())
            rate = (producer.made - made) / value(
                connection, "select extract(epoch from clock_timestamp() - %s)::float8", began
            )
            backlog = producer.made - progress.count
        worker.stop()
        waits_s = read_waits(connection, committed)
    return Steady(
        began=began,
        rate=rate,
        backlog=backlog,
        paused_s=producer.paused_s,
        claims=[
            statement
            for statement in log.statements()
            if "rota.job_claim" in statement.text and statement.at >= began
        ],
        waits_s=waits_s,
    )


def _steady_figures(steady: Steady, scale: Scale) -> Iterator[Figure]:
    first, last = (
        _p99(steady, 0, scale.window_s),
        _p99(steady, scale.steady_s - scale.window_s, scale.steady_s),
    )
    behind = "" if steady.kept_up else f"the worker did NOT keep up: {steady.backlog:,} jobs behind"
    name = f"{RATE:,}/s, claim p99"
    note = f"{steady.rate:,.0f} jobs/s enqueued, {len(steady.claims):,} claims"
    yield Figure(
        part=PART, name=f"{name}, first {scale.window_s:g} s", value=first, unit="ms", note=note
    )
    yield Figure(part=PART, name=f"{name}, last {scale.window_s:g} s", value=last, unit="ms")
    yield Figure(
        part=PART,
        name="last of first",
        value=last / first if steady.kept_up else math.nan,
        unit="×",
        at_most=1.3,
        note=behind,
    )
    waits = steady.waits_s
    note = (
        behind
        or f"{len(waits)} transactions, p50 {readable(percentile(waits, 0.5))} s; "
        f"committed {LATE_S:g} s after the INSERT"
    )
    detail = {"waits_s": [wait if math.isfinite(wait) else None for wait in waits]}
    yield Figure(
        part=PART,
        name="late commit, picked up after",
        value=max(waits),
        unit="s",
        at_most=0.6,
        note=note,
        detail=detail,
    )


def commit_late(
    url: str, for_s: float, producer: Producer, numbers: Iterator[int]
) -> dict[int, float]:
    """Let transactions commit late, one after the other; return when each committed, by the number
    of its job."""
    types = declare()
    app = rota.App(url, jobs=[types.jobs])
    committed: dict[int, float] = {}
    ends_at = time.monotonic() + for_s
    with psycopg.connect(url, autocommit=True) as connection:
        while (left_s := ends_at - time.monotonic()) > 0:
            if left_s < LATE_S + 2:  # too short to see one through
                wait(left_s, producer)
                break
            number = next(numbers)
            with connection.transaction():
                app.enqueue(types.stamped.new(n=number).using(connection=connection))
                time.sleep(LATE_S)
            committed[number] = time.time()
            wait(0.1, producer)
    return committed


def read_waits(connection: psycopg.Connection, committed: Mapping[int, float]) -> list[float]:
    """Return the seconds from each late commit to its handler; infinite: that never started."""
    started: dict[int, float] = dict(
        connection.execute(
            "select (payload->>'n')::int, result::float8 from rota.job_history "
            "where job_type = 'stamped'"
        ).fetchall()
    )
    return [started[n] - at if n in started else math.inf for n, at in committed.items()]


def _p99(steady: Steady, from_s: float, to_s: float) -> float:
    return percentile(
        [
            claim.took_ms
            for claim in steady.claims
            if from_s <= (claim.at - steady.began).total_seconds() < to_s
        ],
        0.99,
    )


def _progress(place: Path) -> Progress:
    path = place / "progress"
    path.unlink(missing_ok=True)
    return Progress(path)


def wait(for_s: float, producer: Producer) -> None:
    """Wait while the producer works."""
    time.sleep(for_s)
    producer.check()


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1")
        yield
        connection.rollback()
