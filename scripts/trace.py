"""Runs a job from `enqueue` to history and counts the modules of `rota` that it goes through.

Part of `make check`; fails where a budget is broken. A module counts when code of its own file
runs: an import does not count, nor does what a dataclass generates. In the worker counts what the
thread of its loop runs between claim and history for each of several jobs. That leaves out
heartbeats, upkeep and other threads, which go on beside the jobs and not once for each.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import rota
from rota import embedded
from rota.declare.job_type import JobType
from rota.store.migrate import migrate
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor

BUDGETS = {
    "enqueue": (8, 15),
    "claim to history": (16, 22),
    "claim to history, with a lane, a limit and a breaker": (18, 24),
}
"""For each way: most modules without those of ASIDE, and most of all."""
ASIDE = ("model.", "declare.", "errors", "observe.events")
"""What can be, what was declared, and what is said of it: a reader of the way knows these."""
BESIDE = ("model.back_off",)
"""The pause after a claim that found nothing: on a busy machine one runs beside each job."""
STEADY = 250
"""Jobs in a row after which nothing more is left out. The loops beside the jobs turn every second
or less often, and more often only while the worker starts."""
QUIET_S = 0.02
"""The worker ends what it did for the job before; else the list would begin with that."""
TIMEOUT_S = 60.0
PACKAGE = f"{Path(rota.__file__).parent}/"

jobs = rota.Jobs()


@jobs.job("greet")
async def greet(name: str) -> None:
    """Does nothing, for what counts is what Rota does around it."""


guarded = rota.Jobs()


@guarded.job(
    "visit",
    ordered=lambda name: "all",
    rate_limit=rota.RateLimit("visits", 1_000_000, per="1s"),
    breaker=rota.Breaker("visits"),
)
async def visit(name: str) -> None:
    """As `greet`, in a lane, with a limit and a breaker."""


def main() -> int:
    """Print each way with its budgets; return 1 when one is broken."""
    logging.getLogger("rota").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="rota-trace-") as directory:
        url = embedded.start(Path(directory))
        try:
            migrate(url)
            ways = trace(url)
        finally:
            embedded.stop(Path(directory))
    kept = [show(way, modules) for way, modules in ways.items()]
    return 0 if all(kept) else 1


def trace(url: str) -> dict[str, list[str]]:
    """The modules of each way, in the order of their first call."""
    # Without LISTEN the worker finds the job by itself, so the way begins with the claim.
    app = rota.App(url, jobs=[jobs], notify=False)
    greet.enqueue("the first, which connects")
    with note_modules() as modules:
        greet.enqueue("the one that is traced")
    plain = asyncio.run(trace_work(app, greet))
    app = rota.App(url, jobs=[guarded], notify=False)
    app.sync()
    for _ in range(2):
        visit.enqueue("one before")
    return {
        "enqueue": list(modules),
        "claim to history": plain,
        "claim to history, with a lane, a limit and a breaker": asyncio.run(trace_work(app, visit)),
    }


async def trace_work(app: rota.App, job_type: JobType[..., ..., Any]) -> list[str]:
    """The modules that each job of a type goes through in a worker that is at work."""
    succeeded: asyncio.Queue[rota.events.JobSucceeded] = asyncio.Queue()
    app.on(rota.events.JobSucceeded, succeeded.put_nowait)
    way: list[str] | None = None
    steady = 0
    async with asyncio.timeout(TIMEOUT_S):
        working = asyncio.create_task(app.arun(concurrency=1))
        for _ in range(2):  # those that were enqueued before
            await succeeded.get()
        while steady < STEADY:
            await asyncio.sleep(QUIET_S)
            with note_modules(since=Claimer.tick, until=Executor.take) as modules:
                await asyncio.to_thread(job_type.enqueue, "another")
                await succeeded.get()
            before, way = way, [module for module in modules if way is None or module in way]
            steady = steady + 1 if before is not None and len(way) == len(before) else 0
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    return [module for module in way or [] if module not in BESIDE]


@contextmanager
def note_modules(
    since: Callable[..., object] | None = None,
    until: Callable[..., object] | None = None,
) -> Iterator[dict[str, None]]:
    """Note the modules whose code this thread runs, as keys in the order of their first call.

    Begin anew with each call of `since` until `until` was called: what idle claims did before the
    claim of the job is not on its way.
    """
    modules: dict[str, None] = {}
    begin = None if since is None else since.__code__
    end = None if until is None else until.__code__
    last: FrameType | None = None

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal begin, last
        file = frame.f_code.co_filename
        if frame.f_code is end:
            begin = None
        elif frame.f_code is begin and frame is not last:  # and not the same call, resumed
            last = frame
            modules.clear()
        if event == "call" and file.startswith(PACKAGE):
            module = file.removeprefix(PACKAGE).removesuffix(".py").removesuffix("/__init__")
            modules.setdefault(module.replace("/", "."))

    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(None)


def show(way: str, modules: list[str]) -> bool:
    """Print one way; return whether it keeps its budgets."""
    most, most_of_all = BUDGETS[way]
    counted = [module for module in modules if not module.startswith(ASIDE)]
    aside = [module for module in modules if module.startswith(ASIDE)]
    print(f"{len(counted):4}  modules on the way of a job, {way} (at most {most})")
    print(f"      {', '.join(counted)}")
    print(f"{len(modules):4}  with those aside (at most {most_of_all})")
    print(f"      {', '.join(aside)}")
    return len(counted) <= most and len(modules) <= most_of_all


if __name__ == "__main__":
    sys.exit(main())
