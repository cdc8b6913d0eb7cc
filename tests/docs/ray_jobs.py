"""Handlers that drive tasks on a Ray cluster; these say in a file where they run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import rota

SOON = rota.Fixed("1s", jitter=0)

jobs = rota.Jobs()


def wait_for(place: str, go: str) -> str:
    """Say which process this is; return when a file is there."""
    with Path(place).open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")
    while not Path(go).exists():
        time.sleep(0.02)
    return "went"


def compute(ctx: rota.Context, place: str, go: str) -> Any:
    """Wait for a task as the page does."""
    import ray

    with ray.init("auto", log_to_driver=False):
        task = ray.remote(max_retries=0)(wait_for).remote(place, go)
        while not ray.wait([task], timeout=0.1)[0]:
            ctx.raise_if_cancelled()
        return ray.get(task)


@jobs.job("computes", process=True, retry=SOON, takes_context=True)
def computes(ctx: rota.Context, place: str, go: str) -> Any:
    return compute(ctx, place, go)


@jobs.job("late", process=True, timeout="12s", retry=SOON, takes_context=True)
def late(ctx: rota.Context, place: str, go: str) -> Any:
    compute(ctx, place, go)
