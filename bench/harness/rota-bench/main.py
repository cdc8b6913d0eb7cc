#!/usr/bin/env python3
"""Rota in the long-horizon harness: one process that enqueues at a rate, works and reports.

stdout has one JSON record a line, stderr the logs. The environment says what to do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psycopg
import uvloop

import rota

EVENT_TABLES = ["rota.job"]
"""As in adapter.json; the partitions of the history are added at the start."""
STOP_GRACE = "2s"
"""The harness allows five seconds from SIGTERM to the end."""
STOP_S = 4.0
PAUSE_S = 0.1
"""Of the producer after a refused INSERT, or with nothing to do."""
WINDOW_S = 30
FIGURES = 1.002
"""Each bucket of a histogram is 0.2 % wide, so its middle is right to three figures."""
SHORTEST_MS = 0.001
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
OVERHEAD_BYTES = 64
"""What a payload has beside its padding: names, a number, a time."""

log = logging.getLogger("rota-bench")


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the harness asks for."""

    url: str
    scenario: str
    system: str
    instance: int
    is_depth_target: bool
    is_paced_by_harness: bool
    rate: int
    rate_file: Path | None
    batch_max: int
    batch_s: float
    target_depth: int
    workers: int
    padding: str
    work_s: float
    sample_every_s: int
    queues: tuple[str, ...]
    chunk: int

    @classmethod
    def read(cls) -> Settings:
        """Read the environment."""
        rate_file = os.environ.get("PRODUCER_RATE_CONTROL_FILE")
        chunk = _number("ROTA_CHUNK", 0)
        return cls(
            url=os.environ["DATABASE_URL"],
            scenario=os.environ.get("SCENARIO", "long_horizon"),
            system="rota-chunk" if chunk else "rota",
            instance=_number("BENCH_INSTANCE_ID", 0),
            is_depth_target=os.environ.get("PRODUCER_MODE") == "depth-target",
            is_paced_by_harness=os.environ.get("PRODUCER_PACING") == "harness",
            rate=_number("PRODUCER_RATE", 800),
            rate_file=Path(rate_file) if rate_file else None,
            batch_max=max(1, _number("PRODUCER_BATCH_MAX", 128)),
            batch_s=max(1, _number("PRODUCER_BATCH_MS", 25)) / 1000,
            target_depth=_number("TARGET_DEPTH", 1000),
            workers=_number("WORKER_COUNT", 32),
            padding="x" * max(0, _number("JOB_PAYLOAD_BYTES", 256) - OVERHEAD_BYTES),
            work_s=_number("JOB_WORK_MS", 1) / 1000,
            sample_every_s=_number("SAMPLE_EVERY_S", 5),
            queues=tuple(
                f"bench_{number}" for number in range(max(1, _number("BENCH_QUEUE_COUNT", 1)))
            ),
            chunk=chunk,
        )

    @property
    def is_observer(self) -> bool:
        """Whether this replica reports what is the same for all."""
        return self.instance == 0

    def rate_now(self) -> float:
        """Return the rate that the harness asks for at this moment."""
        if self.rate_file is None:
            return float(self.rate)
        try:
            return float(self.rate_file.read_text())
        except (OSError, ValueError):  # it is just being written
            return float(self.rate)


class Latencies:
    """Milliseconds of the last 30 seconds, as a histogram for each of these seconds.

    The memory is bounded by the range of the values, whatever their number.
    """

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[int]]] = deque(maxlen=WINDOW_S + 1)

    def add(self, ms: float) -> None:
        second = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Counter()))
        bucket = math.floor(math.log(max(ms, SHORTEST_MS), FIGURES))
        self._seconds[-1][1][bucket] += 1

    def quantiles(self) -> Iterator[tuple[str, float]]:
        """Yield the name and the value of each."""
        since = int(time.monotonic()) - WINDOW_S
        window: Counter[int] = Counter()
        for second, counts in self._seconds:
            if second >= since:
                window.update(counts)
        total, buckets = window.total(), sorted(window)
        for name, share in QUANTILES.items():
            yield name, self._value(window, buckets, math.ceil(share * total))

    def _value(self, window: Counter[int], buckets: list[int], rank: int) -> float:
        below = 0
        for bucket in buckets:
            below += window[bucket]
            if below >= rank:
                return float(FIGURES ** (bucket + 0.5))
        return 0.0  # nothing has happened in the window


class Measures:
    """What has happened so far."""

    def __init__(self) -> None:
        self.enqueued = 0
        self.completed = 0
        """Handlers that have returned, as the harness's other adapters count."""
        self.claim = Latencies()
        """From just before the INSERT to the start of the handler."""
        self.end_to_end = Latencies()
        self.producer_call = Latencies()


@dataclass(slots=True)
class Item:
    """The payload of one job of a call for many."""

    seq: int
    at: float
    padding: str


def declare(jobs: rota.Jobs, settings: Settings, measures: Measures) -> Any:
    """Declare the job type and return it: one call for each job, or one for up to `chunk` of them.

    A call for many does the work of its jobs one after the other, so that never more jobs are
    worked on at once than there are slots.
    """

    async def work(at: float) -> None:
        measures.claim.add((time.time() - at) * 1000)
        if settings.work_s:
            await asyncio.sleep(settings.work_s)
        measures.end_to_end.add((time.time() - at) * 1000)
        measures.completed += 1

    if settings.chunk:

        @jobs.job("bench_job", chunk=settings.chunk)
        async def work_on_many(items: list[Item]) -> None:
            for item in items:
                await work(item.at)

        return work_on_many

    @jobs.job("bench_job")
    async def work_on_one(seq: int, at: float, padding: str) -> None:
        await work(at)

    return work_on_one


class Producer:
    """Enqueues at the rate that is asked for, in calls of up to `batch_max` jobs."""

    def __init__(
        self, app: rota.App, bench_job: Any, settings: Settings, measures: Measures
    ) -> None:
        self._app = app
        self._bench_job = bench_job
        self._settings = settings
        self._measures = measures
        self._seq = 0
        self._due = 0.0
        """Jobs that should have been enqueued by now."""
        self._arrived = asyncio.Event()

    async def run(self) -> None:
        """Produce until cancelled."""
        wait = self._wait_for_depth if self._settings.is_depth_target else self._wait_for_rate
        while True:
            due = await wait()
            while due > 0:
                count = min(due, self._settings.batch_max)
                await self._enqueue(count)
                due -= count

    async def read_tokens(self) -> None:
        """Take what the harness writes to stdin, `ENQUEUE n` a line, until it ends."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        try:
            async for line in reader:
                word, _, count = line.decode().partition(" ")
                if word == "ENQUEUE":
                    self._due += int(count)
                    self._arrived.set()
        finally:
            transport.close()

    async def credit_time(self) -> None:
        """Add what the elapsed time owes: all of the rate, or what the tokens do not have of it.

        The tokens of the harness stay at the rate of the start, and in a phase of high load the
        file has a higher one.
        """
        before = time.monotonic()
        by_tokens = self._settings.rate if self._settings.is_paced_by_harness else 0
        while True:
            await asyncio.sleep(self._settings.batch_s)
            now = time.monotonic()
            self._due += max(0.0, self._settings.rate_now() - by_tokens) * (now - before)
            before = now
            if self._due >= 1:
                self._arrived.set()

    async def _wait_for_rate(self) -> int:
        await self._arrived.wait()
        self._arrived.clear()
        whole = int(self._due)
        self._due -= whole
        return whole

    async def _wait_for_depth(self) -> int:
        missing = 0
        while missing <= 0:
            try:
                missing = self._settings.target_depth - await read_depth(self._app)
            except rota.DatabaseUnavailable as error:
                log.warning("the depth is unknown: %s", error)
            if missing <= 0:
                await asyncio.sleep(PAUSE_S / 2)
        return missing

    async def _enqueue(self, count: int) -> None:
        queue = self._settings.queues[self._seq % len(self._settings.queues)]
        began, at = time.perf_counter(), time.time()
        bench_job = self._bench_job.using(queue=queue)
        jobs = [
            bench_job.new(seq=self._seq + n, at=at, padding=self._settings.padding)
            for n in range(count)
        ]
        try:
            await self._app.aenqueue_many(jobs)
        except rota.DatabaseUnavailable as error:
            # As a request that fails: it is not offered again.
            log.warning("%s jobs are not enqueued: %s", count, error)
            await asyncio.sleep(PAUSE_S)
            return
        self._measures.producer_call.add((time.perf_counter() - began) * 1000)
        self._measures.enqueued += count
        self._seq += count


async def read_depth(app: rota.App) -> int:
    """Return how many jobs are due and not claimed; 10,000 of a queue mean at least so many."""
    return sum(queue.due for queue in await app.queues.alist())


class Sampler:
    """Writes the measures at each multiple of the interval of the wall clock."""

    def __init__(self, app: rota.App, settings: Settings, measures: Measures) -> None:
        self._app = app
        self._settings = settings
        self._measures = measures
        self._depth = 0

    async def run(self) -> None:
        """Sample until cancelled."""
        every_s = self._settings.sample_every_s
        before, enqueued, completed = time.monotonic(), 0, 0
        while True:
            await asyncio.sleep(every_s - time.time() % every_s)
            now = time.monotonic()
            took_s, before = now - before, now
            rates = {
                "enqueue_rate": (self._measures.enqueued - enqueued) / took_s,
                "completion_rate": (self._measures.completed - completed) / took_s,
            }
            enqueued, completed = self._measures.enqueued, self._measures.completed
            self._write(rates, now_iso())

    async def watch_depth(self) -> None:
        """Keep the depth up to date, between the samples."""
        while True:
            try:
                self._depth = await read_depth(self._app)
            except rota.DatabaseUnavailable as error:
                log.warning("the depth is that of before: %s", error)
            await asyncio.sleep(self._settings.sample_every_s / 5)

    def _write(self, rates: dict[str, float], at: str) -> None:
        for name in ("claim", "end_to_end", "producer_call"):
            for quantile, value in getattr(self._measures, name).quantiles():
                self._emit(at, f"{name}_{quantile}_ms", value, WINDOW_S)
        for metric, rate in rates.items():
            self._emit(at, metric, rate, self._settings.sample_every_s)
        if self._settings.is_observer:
            self._emit(at, "queue_depth", self._depth, 0)
            is_fixed = not self._settings.is_depth_target
            target = self._settings.rate_now() if is_fixed else 0.0
            self._emit(at, "producer_target_rate", target, 0)

    def _emit(self, at: str, metric: str, value: float, window_s: float) -> None:
        write(
            self._settings,
            t=at,
            kind="adapter",
            subject_kind="adapter",
            subject="",
            metric=metric,
            value=value,
            window_s=window_s,
        )


def write(settings: Settings, **record: object) -> None:
    """Write one record of the telemetry."""
    print(
        json.dumps({"system": settings.system, "instance_id": settings.instance, **record}),
        flush=True,
    )


def now_iso() -> str:
    """Return the time as the harness writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe(settings: Settings) -> None:
    """Write the descriptor: what is measured, and which tables it writes."""
    with psycopg.connect(settings.url) as connection:
        partitions = connection.execute(
            "select relid::regclass::text from pg_partition_tree('rota.job_history') where isleaf"
            " order by 1 limit 2"  # of today and tomorrow; the days after stay empty
        ).fetchall()
        newest = connection.execute("select max(name) from rota.migration").fetchone()
    write(
        settings,
        kind="descriptor",
        event_tables=[*EVENT_TABLES, *(name for (name,) in partitions)],
        extensions=[],
        version=rota.__version__,
        schema_version=newest and newest[0],
        db_name=urlparse(settings.url).path.lstrip("/"),
        started_at=now_iso(),
    )


async def run(settings: Settings) -> None:
    """Produce, work and report until SIGTERM or SIGINT."""
    measures = Measures()
    jobs = rota.Jobs()
    bench_job = declare(jobs, settings, measures)
    app = rota.App(settings.url, jobs=[jobs])
    producer = Producer(app, bench_job, settings, measures)
    sampler = Sampler(app, settings, measures)
    parts: list[Callable[[], Awaitable[object]]] = [producer.run, sampler.run]
    if not settings.is_depth_target:
        parts.append(producer.credit_time)
        if settings.is_paced_by_harness:
            parts.append(producer.read_tokens)
    if settings.is_observer:
        parts.append(sampler.watch_depth)

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    worker = asyncio.create_task(
        app.arun(queues=settings.queues, concurrency=settings.workers, grace=STOP_GRACE)
    )
    tasks = [worker, *(asyncio.ensure_future(part()) for part in parts)]
    ended = asyncio.create_task(stopping.wait())
    await wait_for_end(ended, tasks)
    for task in [ended, *tasks]:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_S)
    await app.aclose()
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def wait_for_end(ended: asyncio.Task[bool], tasks: list[asyncio.Task[object]]) -> None:
    """Return after the signal, or as soon as a part has failed."""
    running = set(tasks)
    while not ended.done():
        done, _ = await asyncio.wait([ended, *running], return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() is not None for task in done):
            return
        running -= done  # the tokens end with the harness


def main() -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="[rota] %(message)s")
    settings = Settings.read()
    rota.App(settings.url).migrate()
    if settings.scenario == "migrate_only":
        return 0
    if settings.scenario != "long_horizon":
        log.error("this adapter does not know SCENARIO=%s", settings.scenario)
        return 2
    describe(settings)
    uvloop.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
