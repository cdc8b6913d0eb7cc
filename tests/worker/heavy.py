"""Handlers with `process=True`, for tests: another process has to import them. As a program,
a worker for them: `python -m tests.worker.heavy OPTIONS`, OPTIONS being `App.run`'s in JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import rota
from rota.model.outcome import Outcome

jobs = rota.Jobs()
app = rota.App(jobs=[jobs, "tests.worker.apart:jobs"], release="heavy-1")

FIXED = rota.Fixed("1m", jitter=0)


def say(place: str, what: object) -> None:
    """Append a line to a file."""
    with Path(place).open("a") as notes:
        notes.write(f"{what}\n")


def _start_a_program() -> int:
    return subprocess.Popen(["sleep", "300"]).pid


def fork_and_end() -> int | None:
    """Return how what it forks ends after a SIGTERM."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(60)
    child.kill()
    return child.exitcode


def fork_and_leave(code: int) -> int | None:
    """Return the exit status of a copy that leaves the handler."""
    copy = os.fork()
    if copy == 0:
        return sys.exit(code) if code else None
    killer = threading.Timer(30, os.kill, (copy, signal.SIGKILL))
    killer.start()
    _, status = os.waitpid(copy, 0)
    killer.cancel()
    return os.waitstatus_to_exitcode(status)


async def afork_and_leave(code: int) -> int | None:
    """Do the same on a loop."""
    return fork_and_leave(code)


jobs.job("forks", process=True)(fork_and_end)
jobs.job("forks here")(fork_and_end)
jobs.job("leaves", process=True)(fork_and_leave)
jobs.job("leaves here")(fork_and_leave)
jobs.job("leaves the loop")(afork_and_leave)


@jobs.job("recycled", process=rota.Process(recycle_after=2))
def recycled() -> int:
    """Say which process it is."""
    return os.getpid()


@jobs.job("seen", process=True, takes_context=True)
def seen(ctx: rota.Context, on: date, ids: list[int]) -> dict[str, Any]:
    """Wait for jobs, then say what arrived: an argument that is no plain JSON, the context, and
    what came of the jobs."""
    if not ctx.results:
        raise rota.WaitFor(ids, on_failure="wait")
    assert rota.context() is ctx
    return {
        "on": on.isoformat(),
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "id": ctx.job.id,
        "worker": ctx.worker,
        "state": ctx.state,
        "cancelled": ctx.cancelled,
        "has time left": 0 < ctx.time_left_s <= 300,
        "attempts": ctx.job.attempts,
        "app": ctx.app is app,
        "told": [[result.outcome, result.result] for result in ctx.results.values()],
    }


@jobs.job("reports progress", process=True, takes_context=True)
def reports_progress(ctx: rota.Context, go: str) -> None:
    """Say how far it is, wait for a file, say it again, and go on until told to stop."""
    for done in range(10_000):
        ctx.progress(done, note="loading")
    while not Path(go).exists():
        ctx.raise_if_cancelled()
        time.sleep(0.01)
    ctx.progress(10_000, 20_000)
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.01)


@jobs.job("reports its end", process=True, takes_context=True)
def reports_its_end(ctx: rota.Context, go: str) -> None:
    """Say how far it is, wait for a file, and end with the last report."""
    ctx.progress(7, 10)
    while not Path(go).exists():
        time.sleep(0.01)
    ctx.progress(9, 10)
    while ctx._has_news:  # the other thread sends that
        time.sleep(0.01)
    ctx.progress(10, 10)


@jobs.job("awaits", process=True)
async def awaits() -> None:
    """Say how far it is, and go on until told to stop."""
    rota.context().progress(1, 2)
    await asyncio.Event().wait()


@jobs.job("awaited", process=True)
async def awaited() -> int:
    """An async handler."""
    await asyncio.sleep(0.01)
    return rota.context().job.id


class LocalError(Exception):
    """Unpickling calls it with one argument, and fails."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.status_code = code


class FatalError(Exception):
    """In `fatal_on`."""


@jobs.job("fails", process=True, retry=FIXED, fatal_on=(FatalError,))
def fails(how: str) -> Any:
    """Fail in one of many ways."""
    _fail(how)
    return _outcome(how)


def _fail(how: str) -> None:
    class NestedError(Exception):
        pass

    match how:
        case "raise":
            raise ValueError("password=hunter2 is wrong")
        case "unpicklable":
            raise LocalError(404, "gone")
        case "nested":
            raise NestedError("nobody can import me")
        case "fatal":
            raise FatalError("no use")
        case "system exit":
            sys.exit(3)
        case "os._exit":
            os._exit(7)
        case "forks and dies":
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,)).start()
            os._exit(8)


def _outcome(how: str) -> Any:
    match how:
        case "retry":
            raise rota.Retry("later", after="5m")
        case "retry from":
            raise rota.Retry("later", after="5m") from LocalError(503, "gone")
        case "dead from":
            raise rota.Dead from LocalError(404, "gone")
        case "snooze":
            return rota.Snooze("1h", "not now")
        case "dead":
            return rota.Dead("no use")
        case "cancel":
            raise rota.Cancel("cancelled")
        case "odd outcome":
            return Outcome("neither this nor that")
    return object() if how == "odd result" else None


@jobs.job("bills", process=True, retry=FIXED, takes_context=True)
def bills(context: rota.Context, how: str) -> None:
    """Write an invoice in the transaction that finishes the job."""
    with context.transaction() as connection:
        connection.execute("insert into public.invoice values (%s)", [context.job.id])
        if how == "raises":
            raise ValueError("no such customer")
    if how == "dies after":
        os._exit(9)


@jobs.job("hangs", process=True, timeout="5m", retry=FIXED)
def hangs(place: str) -> NoReturn:
    """Start another program, and never end."""
    say(place, f"{os.getpid()} {_start_a_program()}")
    while True:
        signal.pause()


@jobs.job("holds the lock", process=True, timeout="5m")
def holds_the_lock(place: str) -> int:
    """Compute without ever letting another thread of the process run."""
    say(place, f"{os.getpid()} {_start_a_program()}")
    return sum(range(10**12))


@jobs.job("stops", process=True, timeout="0.6s", retry=FIXED, takes_context=True)
def stops(ctx: rota.Context, place: str) -> None:
    """Ask whether it should stop."""
    try:
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.01)
    finally:
        say(place, ctx.cancelled)


@jobs.job("eats", process=rota.Process(max_memory="150MiB"), retry=FIXED)
def eats(place: str) -> NoReturn:
    """Hold more memory than allowed, in a program that it starts."""
    other = subprocess.Popen(
        [sys.executable, "-IS", "-c", "held = b'x' * 200 * 1024**2; import time; time.sleep(300)"]
    )
    say(place, f"{os.getpid()} {other.pid}")
    time.sleep(300)
    raise AssertionError


@jobs.job("until", process=True, timeout="1m")
def until(place: str, go: str) -> str:
    """Say that it runs, and run until a file is there."""
    say(place, os.getpid())
    while not Path(go).exists():
        time.sleep(0.02)
    return "went"


@jobs.job("prints", process=True)
def prints() -> None:
    """Print and log."""
    print("a line printed by a handler")  # noqa: T201 - what the test is about
    logging.getLogger("heavy").warning("a line logged by a handler")


def _prepare(notes: str) -> int:
    say(notes, "step")
    return 12


@jobs.job("guarded", process=True, retry=FIXED, takes_context=True)
def guarded(ctx: rota.Context, notes: str) -> int:
    """Die within an effect, fail after it, then succeed."""
    size = ctx.step("prepare", _prepare, notes)
    ctx.effect("mail", if_uncertain="repeat").call(_send, ctx, notes)
    if ctx.job.attempts == 2:
        raise ValueError("later")
    return size


@jobs.job("aguarded", process=True, retry=FIXED, takes_context=True)
async def aguarded(ctx: rota.Context, notes: str) -> int:
    """The same on a loop."""

    async def prepare() -> int:
        return _prepare(notes)

    size = await ctx.step("prepare", prepare)
    async with ctx.effect("amail", if_uncertain="repeat") as effect:
        if not effect.done:
            effect.result = _send(ctx, notes)
    if ctx.job.attempts == 2:
        raise ValueError("later")
    return size


def _send(ctx: rota.Context, notes: str) -> str:
    say(notes, "send")
    if ctx.job.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "m-1"


@jobs.job("plain")
def plain() -> int:
    """In a thread, beside the others."""
    return 7


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
