"""Job types with a rate limit, for worker processes: `python -m tests.worker.limit_app OPTIONS`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

import rota

app = rota.App(release="app-1")


@app.job("mail", rate_limit=rota.RateLimit("smtp", 20, per="2s", burst=5), lease="3s")
async def mail() -> None:
    """Do nothing, at most so often."""


@app.job("fast", rate_limit=rota.RateLimit("fast", 300, per="1s", burst=30))
async def fast() -> None:
    """The same, with a faster limit."""


def find_key(name: str) -> str:
    """Return one key for all; of one name it ends the process as a fault in C code would."""
    if name == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    return "all"


@app.job(
    "keyed",
    rate_limit=rota.RateLimit("keyed", 4, per="1s", burst=1, key=find_key),
    max_attempts=3,
    retry=rota.Fixed("1s"),
)
async def keyed(name: str) -> None:
    """Do nothing."""


@app.job("stall", priority=10)
async def stall(seconds: float) -> None:
    """Block the loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    options = json.loads(sys.argv[1])
    (app.drain if options.pop("drain", False) else app.run)(**options)
