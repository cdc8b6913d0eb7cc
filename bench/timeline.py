"""Where a drain waits: `python bench/timeline.py [--jobs N] [--type many] [--src OTHER/src]`.

One worker process drains no-op jobs. It says which statements were in flight and for how long; the
CPU of the client, of each of its backends and of the rest of the server is read every 0.2 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
import psycopg  # noqa: E402

from bench import place  # noqa: E402
from bench.producer import fill  # noqa: E402
from bench.quiet import describe_load  # noqa: E402
from bench.server import DurableServer  # noqa: E402

EVERY_S = 0.2
"""Seconds between two readings of the CPU."""
MARGIN = 0.1
"""This share of a drain, at its beginning and at its end, is left out: it starts and runs dry."""
DRAIN = """
import json, logging, re, sys, time
import rota
from bench.app import declare
from rota.store.drivers.psycopg3 import AsyncPsycopgDriver

url, job_type, into = sys.argv[1:]
statements = []
run = AsyncPsycopgDriver.run

async def note(self, text, params):
    began = time.perf_counter()
    rows = []
    try:
        rows = await run(self, text, params)
        return rows
    finally:
        found = re.search(rb"rota\\.(\\w+)\\(", text)
        name = found[1].decode() if found else text[:20].decode()
        if name == "claim_news":
            name = "job_claim"
        statements.append((name, began, time.perf_counter(), len(rows)))

AsyncPsycopgDriver.run = note
logging.getLogger("rota").setLevel(logging.WARNING)
app = rota.App(url, jobs=[declare().jobs])
sys.stdin.readline()
began, cpu = time.perf_counter(), time.process_time()
report = app.drain(concurrency=100)
took, cpu_s = time.perf_counter() - began, time.process_time() - cpu
with open(into, "w") as file:
    json.dump({"jobs": report.succeeded, "took_s": took, "cpu_s": cpu_s,
               "began": began, "statements": statements}, file)
app.close()
"""
"""The work of a release: another one must be able to run it."""


@dataclass(slots=True)
class Statements:
    """The executions of one statement."""

    spans: list[tuple[float, float, int]] = field(default_factory=list)
    """When each was sent, when its rows were there, and how many they were."""

    def clip(self, since: float, until: float) -> Statements:
        """Return those that lie within."""
        return Statements([span for span in self.spans if span[0] >= since and span[1] <= until])

    @property
    def busy_s(self) -> float:
        """How long at least one was in flight."""
        busy, reached = 0.0, -1.0
        for began, ended, _ in sorted(self.spans):
            busy += max(0.0, ended - max(began, reached))
            reached = max(reached, ended)
        return busy

    @property
    def gaps_ms(self) -> list[float]:
        """The pauses between the rows of one and the sending of the next."""
        spans = sorted(self.spans)
        return [1e3 * (after[0] - before[1]) for before, after in itertools.pairwise(spans)]


class Cpu(threading.Thread):
    """Reads the CPU seconds of processes, and what each of them is, until it is stopped."""

    def __init__(self, client: int, server: DurableServer, url: str) -> None:
        super().__init__(daemon=True)
        self._client = psutil.Process(client)
        self._server = server
        self._url = url
        self._done = threading.Event()
        self._names: dict[int, str] = {}
        self.readings: list[tuple[float, dict[str, float]]] = []

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._done.wait(EVERY_S):
                self.readings.append((time.perf_counter(), self._read(connection)))

    def stop(self) -> None:
        """End."""
        self._done.set()
        self.join()

    def _read(self, connection: psycopg.Connection) -> dict[str, float]:
        if len(self.readings) % 5 == 0:
            rows = connection.execute(
                "select pid, case when application_name like 'rota %' then application_name "
                "else 'the rest of the server' end from pg_stat_activity "
                "where pid <> pg_backend_pid()"
            ).fetchall()
            self._names = dict(rows)
        found: dict[str, float] = defaultdict(float)
        found["client"] = sum(self._client.cpu_times()[:2])
        for pid, name in self._names.items():
            try:
                found[name] += sum(psutil.Process(pid).cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return found

    def find_rates(self, since: float, until: float) -> dict[str, float]:
        """Return how busy each was meanwhile, in cores."""
        within = [reading for reading in self.readings if since <= reading[0] <= until]
        if len(within) < 2:
            return {}
        (began, first), (ended, last) = within[0], within[-1]
        return {
            name: (last[name] - first.get(name, 0.0)) / (ended - began)
            for name in sorted(last, key=lambda name: -last[name])
        }


def main() -> None:
    """Drain once, and print where it waited."""
    parser = argparse.ArgumentParser(prog="bench/timeline.py", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--type", default="noop", help="noop, or many: 100 jobs a call")
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="src of another checkout")
    place.add_option(parser)
    options = parser.parse_args()
    print(describe_load())
    with place.begin_run(memory=options.memory) as (run, sync):
        print(f"The server is {sync}")
        server = DurableServer(run.place)
        server.start()
        for line in _drain(server, run.place, options):
            print(line)


def _drain(server: DurableServer, place: Path, options: argparse.Namespace) -> Iterator[str]:
    into = place / "statements.json"
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            fill(connection, options.type, options.jobs)
        with subprocess.Popen(
            [sys.executable, "-c", DRAIN, url, options.type, str(into)],
            env={**os.environ, "PYTHONPATH": f"{options.src.resolve()}:{ROOT}"},
            stdin=subprocess.PIPE,
            text=True,
        ) as process:
            cpu = Cpu(process.pid, server, url)
            cpu.start()
            process.communicate("go\n")
            cpu.stop()
        if process.returncode != 0:
            raise RuntimeError(f"the worker process ended with {process.returncode}")
    yield from _describe(json.loads(into.read_text()), cpu)


def _describe(drained: dict[str, object], cpu: Cpu) -> Iterator[str]:
    jobs, took_s, began = (float(str(drained[name])) for name in ("jobs", "took_s", "began"))
    client_us = 1e6 * float(str(drained["cpu_s"])) / jobs
    speed = f"{jobs:,.0f} jobs in {took_s:.2f} s: {jobs / took_s:,.0f}/s"
    yield f"{speed}, client {client_us:.1f} µs a job"
    since, until = began + MARGIN * took_s, began + (1 - MARGIN) * took_s
    rates = cpu.find_rates(since, until)
    yield f"cores busy: {sum(rates.values()):.2f} of {os.cpu_count()}"
    for name, rate in rates.items():
        if rate >= 0.005:
            yield f"  {rate:5.2f}  {name}"
    by_name: dict[str, Statements] = defaultdict(Statements)
    listed: Any = drained["statements"]
    for name, sent, answered, rows in listed:
        by_name[name].spans.append((sent, answered, rows))
    yield "statements: in flight of the time, number, rows, ms each, ms until the next is sent"
    for name, all_of_it in sorted(by_name.items(), key=lambda named: -named[1].busy_s):
        some = all_of_it.clip(since, until)
        if len(some.spans) < 2:
            continue
        rows_each = statistics.mean(span[2] for span in some.spans)
        each = statistics.median(1e3 * (ended - sent) for sent, ended, _ in some.spans)
        gap = statistics.median(some.gaps_ms)
        share = 100 * some.busy_s / (until - since)
        counted = f"{len(some.spans):5}  {rows_each:6.0f}  {each:6.1f}  {gap:6.1f}"
        yield f"  {share:4.0f} %  {counted}  {name}"


if __name__ == "__main__":
    main()
