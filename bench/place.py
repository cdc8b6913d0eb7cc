"""Where the server of a benchmark keeps its data, and what a commit costs there.

On a disk: `TMPDIR`, otherwise /var/tmp. In memory commits cost nothing, and the figures are those
of the CPU; so that must be asked for.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import percentile
from tests.support.guard import Run, in_memory

DISK = "/var/tmp"
"""Kept over a restart of the machine, so it is no RAM disk. /tmp may be one."""
WRITES = 300
BLOCK = bytes(8192)
ON_DISK, IN_MEMORY = "on a disk", "in memory, where commits cost nothing"
NO_DISK_US = 20.0
"""Nothing that survives a power failure confirms a write sooner."""


@dataclass(frozen=True, slots=True)
class Sync:
    """How long `fdatasync` takes after a write of 8 kB, in microseconds."""

    median_us: float
    p99_us: float

    @property
    def is_durable(self) -> bool:
        """Whether a commit there waits for a disk."""
        return self.median_us >= NO_DISK_US

    def __str__(self) -> str:
        took = f"fdatasync takes {self.median_us:,.0f} µs, p99 {self.p99_us:,.0f} µs"
        return f"{ON_DISK if self.is_durable else IN_MEMORY} ({took})"


def describe(run: dict[str, Any]) -> str:
    """Return in words where the server of a run was, from the run's JSON."""
    return str(run.get("disk", IN_MEMORY if run["server"]["file_system"] == "tmpfs" else ON_DISK))


def add_option(parser: ArgumentParser) -> None:
    """Let the caller of a benchmark choose the place."""
    parser.add_argument(
        "--memory",
        action="store_true",
        help="keep the server's data in memory: commits cost nothing, the figures are of the CPU",
    )


@contextmanager
def begin_run(*, memory: bool) -> Iterator[tuple[Run, Sync]]:
    """Make the place of a run, which its guard clears; yield what a commit costs there.

    Raises RuntimeError if the place is no disk, or not in memory, and that is not what was asked.
    """
    within = in_memory() if memory else os.environ.get("TMPDIR", DISK)
    if within is None:
        raise RuntimeError("there is no room for a server in memory, or TMPDIR is set")
    run = Run(within)
    try:
        sync = measure_sync(run.place)
        if not (memory or sync.is_durable):
            raise RuntimeError(
                f"{within} is no disk: {sync}. Set TMPDIR to a directory on a disk, or measure "
                "the CPU alone with --memory"
            )
        yield run, sync
    finally:
        run.end()


def measure_sync(place: Path) -> Sync:
    """Write to a file of this directory and time the system call that every commit waits for."""
    took_us = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(WRITES):
            os.write(file.fileno(), BLOCK)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took_us.append(1e6 * (time.perf_counter() - began))
    return Sync(percentile(took_us, 0.5), percentile(took_us, 0.99))
