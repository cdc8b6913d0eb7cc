"""What the workers of these tests run, as a process of its own: `python -m tests.worker.worker_app
OPTIONS`, OPTIONS being `App.run`'s in JSON.

Handlers say what they do in a file, so that a test sees it also while the database is away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import rota
from rota.runtime import supervised

app = rota.App(lease=os.environ.get("WORKER_LEASE", "2m"), release="app-1")

LOOK_EVERY_S = 0.02
supervised.ORPHAN_S = float(os.environ.get("WORKER_ORPHAN_S", supervised.ORPHAN_S))
NOTES = os.open(os.environ["WORKER_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
RETRY = rota.Fixed("1s", jitter=0)


def note(what: str) -> None:
    """Append a line; short appends do not mix."""
    os.write(NOTES, f"{os.getpid()} {what}\n".encode())


def _is_there(path: str) -> bool:
    return Path(path).exists()


@app.job("hold", retry=RETRY, takes_context=True)
async def hold(ctx: rota.Context, until: str) -> None:
    """Run until a file is there."""
    note(f"start {ctx.job.id}")
    try:
        while not _is_there(until):  # noqa: ASYNC110 - a file says nothing when it appears
            await asyncio.sleep(LOOK_EVERY_S)
    except asyncio.CancelledError:
        note(f"cancelled {ctx.job.id}")
        raise
    note(f"end {ctx.job.id}")


@app.job("block", retry=RETRY, takes_context=True)
def block(ctx: rota.Context, until: str, polite: bool = False) -> None:
    """The same in a thread, which cannot be stopped; a polite one asks whether it should."""
    note(f"start {ctx.job.id}")
    while not _is_there(until):
        if polite:
            _heed(ctx)
        time.sleep(LOOK_EVERY_S)
    note(f"end {ctx.job.id}")


def _heed(ctx: rota.Context) -> None:
    try:
        ctx.raise_if_cancelled()
    except rota.AttemptCancelled:
        note(f"cancelled {ctx.job.id}")
        raise


@dataclass
class Many:
    """A job of `many`."""

    id: int
    kills: bool = False


@app.job("many", chunk=10, max_attempts=3, retry=RETRY)
def take_many(jobs: list[Many]) -> None:
    """Take ten at once; one of them may kill the worker."""
    note(f"call {' '.join(str(job.id) for job in jobs)}")
    if any(job.kills for job in jobs):
        os.kill(os.getpid(), signal.SIGKILL)


@app.job("kill", retry=RETRY, max_attempts=3, takes_context=True)
async def kill(ctx: rota.Context) -> None:
    """End its own process as the kernel would."""
    note(f"start {ctx.job.id}")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("once", max_attempts=1, takes_context=True)
async def once(ctx: rota.Context) -> None:
    """Begin once or not at all."""
    note(f"start {ctx.job.id}")


@app.job("quick", retry=RETRY, takes_context=True)
async def quick(ctx: rota.Context) -> None:
    """Do no more than say so."""
    note(f"start {ctx.job.id}")


@app.job("wedge", retry=RETRY, takes_context=True)
async def wedge(ctx: rota.Context, until: str) -> None:
    """Block the loop until a file is there."""
    note(f"start {ctx.job.id}")
    while not _is_there(until):
        time.sleep(LOOK_EVERY_S)  # noqa: ASYNC251 - that is the point


@app.job("leave", retry=RETRY, takes_context=True)
def leave(ctx: rota.Context, until: str) -> None:
    """Leave an orphan behind, which lives until a file is there."""
    subprocess.run(["sh", "-c", '(while [ ! -e "$0" ]; do sleep 0.02; done) &', until], check=True)
    note(f"end {ctx.job.id}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    options = json.loads(sys.argv[1])
    (app.drain if options.pop("drain", False) else app.run)(**options)
