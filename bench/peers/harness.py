"""One command line for all systems in Python: `python -m bench.peers.systems.NAME SETUP VERB …`.

`harness.cjs` is the same for those in JavaScript. The URL of the store, the ledger and the seconds
of a job that works are in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar, Literal

from bench.peers.ledger import PATH, Ledger
from bench.peers.system import Setup, System

URL = "PEERS_URL"
SECONDS = "PEERS_SECONDS"
"""How long a job of kind `work` works."""
LEASE = "PEERS_LEASE"
"""How soon a dead worker should be noticed, in seconds, where a system can be told."""
WORKER = "PEERS_WORKER"
"""The name of a worker; one that is started again has the same."""
BULK = 1_000
CALL_S = 0.05
"""Between two calls at a steady rate."""

Kind = Literal["noop", "stamp", "work"]
KINDS: tuple[Kind, ...] = ("noop", "stamp", "work")


def library(name: str) -> Any:
    """Import a peer's library, which the benchmark itself does not have."""
    return import_module(name)


class CannotDo(Exception):
    """The system has no such form."""


class Harness(ABC):
    """What the benchmark asks of a system."""

    system: ClassVar[System]

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.url = os.environ[URL]
        self.ledger = Ledger(os.environ.get(PATH, os.devnull))
        self.seconds = float(os.environ.get(SECONDS, "0"))
        self.lease_s = float(os.environ[LEASE]) if LEASE in os.environ else None
        """What the crash scenarios set; None: as the system has it."""

    @abstractmethod
    async def prepare(self) -> None:
        """Make its tables."""

    async def open(self) -> None:  # noqa: B027 - not all have something to do
        """Connect, before jobs are enqueued."""

    async def close(self) -> None:  # noqa: B027
        """Close what `open` opened."""

    @abstractmethod
    async def one(self, kind: Kind, n: int) -> None:
        """Enqueue a job, committed when this returns."""

    @abstractmethod
    async def bulk(self, kind: Kind, numbers: range) -> None:
        """Enqueue many jobs at once."""

    async def in_transaction(self, n: int) -> None:
        """Insert a row into `application` and enqueue a job in one transaction."""
        raise CannotDo

    @abstractmethod
    def work(self, slots: int | None) -> None:
        """Run a worker, with so many jobs at once or as many as its setup says, until it is
        killed."""

    # Handlers: what each system's own functions call

    async def handle(self, kind: Kind, n: int) -> None:
        """Run a job of a kind."""
        if kind == "noop":
            self.ledger.count()
        elif kind == "stamp":
            self.ledger.stamp(n)
        else:
            await self.ledger.work(n, self.seconds)

    def handle_here(self, kind: Kind, n: int) -> None:
        """Run a job of a kind in this thread."""
        if kind == "noop":
            self.ledger.count()
        elif kind == "stamp":
            self.ledger.stamp(n)
        else:
            self.ledger.work_here(n, self.seconds)


def main(made: type[Harness]) -> None:
    """Do what the command line says, and print its result as JSON."""
    setup, verb, *given = sys.argv[1:]
    harness = made(made.system.setup(setup))
    if verb == "work":
        harness.work(int(given[0]) if given else None)
    else:
        print(json.dumps(asyncio.run(_do(harness, verb, given))), flush=True)


async def _do(harness: Harness, verb: str, given: list[str]) -> Any:
    if verb == "prepare":
        return await harness.prepare()
    await harness.open()
    try:
        if verb == "fill":
            return await _fill(harness, _kind(given[0]), int(given[1]))
        if verb == "pace":
            return await _pace(harness, _kind(given[0]), float(given[1]), int(given[2]))
        if verb == "steady":
            rate, for_s, first = float(given[1]), float(given[2]), int(given[3])
            return await _keep_steady(harness, _kind(given[0]), rate, for_s, first)
        return await _enqueue(harness, verb, float(given[0]))
    finally:
        await harness.close()


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind == name)


async def _fill(harness: Harness, kind: Kind, count: int) -> None:
    for first in range(0, count, BULK):
        await harness.bulk(kind, range(first, min(first + BULK, count)))


async def _pace(harness: Harness, kind: Kind, rate: float, count: int) -> list[float]:
    """Enqueue single jobs at a rate; return when each was committed."""
    committed = []
    due_at = time.perf_counter()
    for n in range(count):
        await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
        due_at += 1 / rate
        await harness.one(kind, n)
        committed.append(time.time())
    return committed


async def _keep_steady(
    harness: Harness, kind: Kind, rate: float, for_s: float, first: int
) -> dict[str, Any]:
    """Enqueue some jobs in each call, at a rate; return the calls (first job, how many, when
    committed), how long they took, and the CPU that they used."""
    each = max(1, round(rate * CALL_S))
    calls = []
    began, cpu_s = time.perf_counter(), time.process_time()
    for at in range(max(1, round(for_s * rate / each))):
        await asyncio.sleep(max(0.0, began + at * each / rate - time.perf_counter()))
        await harness.bulk(kind, range(first, first + each))
        calls.append((first, each, time.time()))
        first += each
    took_s = time.perf_counter() - began
    return {"calls": calls, "took_s": took_s, "cpu_s": time.process_time() - cpu_s}


async def _enqueue(harness: Harness, form: str, for_s: float) -> float | None:
    """Enqueue in a form for a while; return jobs a second, or None if it has no such form."""
    numbers = _numbers(1)
    bulks = _numbers(BULK)

    async def turn() -> int:
        if form == "single":
            await harness.one("noop", next(numbers))
        elif form == "transaction":
            await harness.in_transaction(next(numbers))
        else:
            first = next(bulks)
            await harness.bulk("noop", range(first, first + BULK))
            return BULK
        return 1

    try:
        await turn()  # the connection, and the plan of the statement
    except CannotDo:
        return None
    jobs, began, took_s = 0, time.perf_counter(), 0.0
    while took_s < for_s:
        jobs += await turn()
        took_s = time.perf_counter() - began
    return jobs / took_s


def _numbers(step: int) -> Iterator[int]:
    n = 0
    while True:
        yield n
        n += step
