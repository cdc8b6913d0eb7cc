"""The application that is measured."""

from __future__ import annotations

import asyncio
import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rota

LIMIT_KEYS = 1_000
NAP_S = 2.0


class Progress:
    """How many jobs have run, in a file that two processes map: the producer reads it without the
    server."""

    BYTES = 8

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.BYTES))
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.BYTES)
        self._count = memoryview(self._map).cast("Q")

    def add(self) -> None:
        """Add one. Only one process and thread may."""
        self._count[0] += 1

    @property
    def count(self) -> int:
        """Return the count."""
        return self._count[0]


@dataclass(frozen=True, slots=True)
class Item:
    """The payload of one job of a type that takes many in one call."""

    n: int


@dataclass(frozen=True, slots=True)
class Types:
    """The job types, in the `Jobs` of one App."""

    jobs: rota.Jobs
    noop: Any
    stamped: Any


def declare(progress: Progress | None = None) -> Types:
    """Declare the job types again: a `Jobs` belongs to one App."""
    jobs = rota.Jobs()

    @jobs.job("noop")
    async def noop(n: int) -> None:
        pass

    @jobs.job("many", chunk=100)
    async def many(items: list[Item]) -> None:
        pass

    @jobs.job("counted")
    async def count(n: int) -> None:
        if progress is not None:
            progress.add()

    @jobs.job("stamped")
    async def stamp(n: int) -> float:
        return time.time()

    @jobs.job("nap")
    async def nap(n: int) -> None:
        await asyncio.sleep(NAP_S)

    # Limits that no worker reaches: only what they cost is measured.
    of_all = rota.RateLimit("of_all", 1_000_000, per="1s")
    of_each = rota.RateLimit("of_each", 1_000_000, per="1s", key=lambda n: n % LIMIT_KEYS)
    jobs.job("limited", rate_limit=of_all)(_nothing)
    jobs.job("limited_by_key", rate_limit=of_each)(_nothing)

    return Types(jobs, noop, stamp)


async def _nothing(n: int) -> None: ...
