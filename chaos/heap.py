"""How many blocks Python holds in a worker, garbage collected before.

Resident memory also grows by what the allocators keep after the busiest moments, and by garbage in
cycles, which CPython 3.11 leaves until it is a quarter of all there is. Blocks grow only with
objects that something still holds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

EVERY_S = 30.0


@asynccontextmanager
async def keep_count(directory: Path) -> AsyncIterator[None]:
    """Keep the count of this process in a file there."""
    task = asyncio.create_task(_write(directory / str(os.getpid())))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _write(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            gc.collect()
            os.pwrite(file, f"{sys.getallocatedblocks():12}\n".encode(), 0)
            await asyncio.sleep(EVERY_S)
    finally:
        os.close(file)


def read(directory: Path, pid: int) -> int | None:
    """Return the count of a process, at most half a minute old; None: it has not written one."""
    with suppress(FileNotFoundError, ValueError):
        return int((directory / str(pid)).read_text())
    return None
