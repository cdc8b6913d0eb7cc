"""What handlers did, in a file outside of the measured database: it survives what the scenarios do
to workers and servers.

One line for each event, appended by one `write`: kind, number, process, time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATH = "PEERS_LEDGER"
"""The environment variable with its path, for workers."""
EACH = 100
"""A process says how many no-op jobs it has begun with each hundredth."""


class Ledger:
    """Where the handlers of one process write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._pid = 0
        self._counts = itertools.count(1)

    def count(self, jobs: int = 1) -> None:
        """Count no-op jobs that begin."""
        self._own()
        at = 0
        for _ in range(jobs):
            at = next(self._counts)
            if at % EACH == 1:
                self._write("count", at)
        if jobs > 1:
            self._write("count", at)

    def stamp(self, n: int) -> None:
        """Say that job `n` begins."""
        self._own()
        self._write("begin", n)

    async def work(self, n: int, seconds: float) -> None:
        """Work for a while, and say so before and after."""
        self.stamp(n)
        await asyncio.sleep(seconds)
        self._write("end", n)

    def work_here(self, n: int, seconds: float) -> None:
        """Work for a while in this thread."""
        self.stamp(n)
        time.sleep(seconds)
        self._write("end", n)

    def _own(self) -> None:
        if self._pid != os.getpid():  # a worker may have forked
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._pid, self._counts = os.getpid(), itertools.count(1)

    def _write(self, kind: str, n: int) -> None:
        os.write(self._file, f"{kind} {n} {self._pid} {time.time():.6f}\n".encode())


@dataclass(frozen=True, slots=True)
class Entry:
    """One line."""

    kind: str
    n: int
    pid: int
    at: float


class LedgerFile:
    """The file, as the benchmark reads it."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self.path = path
        self._read = 0
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Return all complete lines so far."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._entries += _parse(whole.decode())
        return self._entries

    def count_begun(self) -> int:
        """Return how many no-op jobs have begun; each process may have begun up to EACH − 1
        more."""
        most: dict[int, int] = {}
        for entry in self.entries():
            if entry.kind == "count":
                most[entry.pid] = max(most.get(entry.pid, 0), entry.n)
        return sum(most.values())


def _parse(text: str) -> Iterator[Entry]:
    for line in text.splitlines():
        kind, n, pid, at = line.split()
        yield Entry(kind, int(n), int(pid), float(at))
