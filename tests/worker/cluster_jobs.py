"""Handlers that run on a Dask cluster, on this machine: they say in a file where they run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import rota

ON_CLUSTER = rota.Process(cluster="dask", max_memory="150MiB")
SOON = rota.Fixed("1s", jitter=0)

jobs = rota.Jobs()


def note(place: str) -> None:
    """Say which process this is, and of which cluster worker."""
    with Path(place).open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")


def wait_for(path: str) -> None:
    """Return when a file is there."""
    while not Path(path).exists():
        time.sleep(0.02)


@jobs.job("add", process=ON_CLUSTER, takes_context=True)
async def add(ctx: rota.Context, a: int, b: int) -> dict[str, int]:
    return {"sum": a + b, "parent": os.getppid(), "attempt": ctx.job.attempts}


@jobs.job("fails", process=ON_CLUSTER, max_attempts=1)
def fails() -> None:
    raise ValueError("not on this cluster")


@jobs.job("reports", process=ON_CLUSTER, takes_context=True)
def reports(ctx: rota.Context, go: str) -> str:
    ctx.progress(1, total=2)
    wait_for(go)
    first = ctx.effect("call:1").call(lambda: "called")
    with ctx.transaction() as connection:
        connection.execute("create table written as select %s::text as value", [first])
    return "not stored: the transaction has finished the job"


@jobs.job("hangs", process=ON_CLUSTER, timeout="1s", retry=SOON)
def hangs(place: str) -> None:
    note(place)
    time.sleep(600)


@jobs.job("polite", process=ON_CLUSTER, takes_context=True)
def polite(ctx: rota.Context, place: str) -> None:
    note(place)
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.02)


@jobs.job("until", process=ON_CLUSTER, retry=SOON)
def until(place: str, go: str) -> str:
    note(place)
    wait_for(go)
    return "went"


@jobs.job("eats", process=ON_CLUSTER, max_attempts=1)
def eats() -> None:
    kept = bytearray(400 << 20)
    for at in range(0, len(kept), 4096):
        kept[at] = 1
    time.sleep(600)
