"""The application under chaos.

Its handlers record their start and end in a file that nothing deletes and in a table of their own.
Leases are three seconds, so that a freeze of six loses them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import rota
from chaos import heap
from chaos.hooks import TYPES as HOOKS
from chaos.hooks import hooks
from chaos.mails import NAME as MAIL
from chaos.mails import mailer
from chaos.schedules import NAME as SCHEDULE
from chaos.witness import Witness

LEASE = "3s"
RETRY = rota.Fixed("1s", jitter=0)
TRIES = 20
"""Attempts of the types that should succeed: a server crash fails every attempt that wants to
write."""
STARTED = "insert into chaos.run (job, claim, worker) values (%s, %s, %s)"
ENDED = "update chaos.run set ended_at = clock_timestamp() where job = %s and claim = %s"
POOL: dict[str, Any] = {"min_size": 0, "max_size": 4, "timeout": 5, "kwargs": {"autocommit": True}}
PR_SET_PDEATHSIG = 1
SHARED = 50
"""How many tags in a row name the same effect: so several jobs may be at one. The view
`chaos.sender` has it too."""
STEPS = ("reserve", "charge", "ship")
NARROW, LIMITED = "narrow", "limited"
"""The queue whose cap, and the rate limit whose figure, change during the run."""
PIECES = 4
"""For how many jobs a job waits that assembles them."""
DOWN_S, DOWN_SHARE = 4, 0.4
"""How long a host is down at a time, and in how many of these times."""
PARTS = 6
"""Members of a batch that is made within another one."""


@dataclass(frozen=True, slots=True)
class Records:
    """Where handlers write their records, beside their file."""

    asynchronous: AsyncConnectionPool[psycopg.AsyncConnection]
    synchronous: ConnectionPool[psycopg.Connection]


@asynccontextmanager
async def records() -> AsyncIterator[Records]:
    """Open the records for the life of a worker."""
    url = os.environ["ROTA_DATABASE_URL"]
    synchronous = ConnectionPool(url, open=True, check=ConnectionPool.check_connection, **POOL)
    try:
        async with (
            AsyncConnectionPool(
                url, open=False, check=AsyncConnectionPool.check_connection, **POOL
            ) as asynchronous,
            heap.keep_count(Path(os.environ["CHAOS_HEAP"])),
        ):
            yield Records(asynchronous, synchronous)
    finally:
        synchronous.close()


app = rota.App(
    release=os.environ.get("CHAOS_RELEASE", "r0"),
    lease=LEASE,
    lifespan=records,
    jobs=[mailer.jobs, hooks.jobs],
)


@cache
def open_witness() -> Witness:
    """Open the file of this process, which may be a handler's own: it has no lifespan."""
    return Witness(Path(os.environ["CHAOS_WITNESS"]))


@contextmanager
def witness_attempt(ctx: rota.Context) -> Iterator[None]:
    """Write the start at once and the end last, with how it ended."""
    witness = open_witness()
    witness.says("start", ctx)
    how = "raised"
    try:
        yield
        how = "returned"
    except (asyncio.CancelledError, rota.AttemptCancelled):
        how = "stopped"
        raise
    except (rota.Snooze, rota.WaitFor):  # another job is at its effect, or it waits for others
        how = "snoozed"
        raise
    finally:
        witness.says("end", ctx, how)


@app.middleware
def witness_kinds(ctx: rota.Context) -> AbstractContextManager[None]:
    """Witness the attempts of the types whose handlers are Rota's own."""
    is_ours = ctx.items[0].job.job_type in (MAIL, *HOOKS)
    return witness_attempt(ctx) if is_ours else nullcontext()


@asynccontextmanager
async def record(ctx: rota.Context) -> AsyncIterator[None]:
    """Record the async attempts of a call, mostly one. It raises while the server is away, as any
    handler would."""
    with ExitStack() as attempts:
        for item in ctx.items:
            attempts.enter_context(witness_attempt(item))
        async with ctx.state.asynchronous.connection() as connection:
            for item in ctx.items:
                await connection.execute(STARTED, [item.job.id, item.job.claims, item.worker])
        yield
        async with ctx.state.asynchronous.connection() as connection:
            for item in ctx.items:
                await connection.execute(ENDED, [item.job.id, item.job.claims])


@contextmanager
def record_in_thread(ctx: rota.Context) -> Iterator[None]:
    """Record the attempts of a plain function."""
    with ExitStack() as attempts:
        for item in ctx.items:
            attempts.enter_context(witness_attempt(item))
        with ctx.state.synchronous.connection() as connection:
            for item in ctx.items:
                connection.execute(STARTED, [item.job.id, item.job.claims, item.worker])
        yield
        with ctx.state.synchronous.connection() as connection:
            for item in ctx.items:
                connection.execute(ENDED, [item.job.id, item.job.claims])


def chance(ctx: rota.Context) -> random.Random:
    """Return a number that is the same for each run of one claim of one job."""
    return random.Random(f"{ctx.job.id}:{ctx.job.claims}")


@app.job("quick", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def quick(ctx: rota.Context, n: int) -> int:
    """Take milliseconds."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.03))
    return n


@app.job("threaded", max_attempts=TRIES, retry=RETRY, takes_context=True)
def use_thread(ctx: rota.Context, n: int) -> int:
    """Take milliseconds in a thread."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.1))
    return n


@app.job("near_the_lease", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def near_the_lease(ctx: rota.Context, n: int) -> int:
    """Take about as long as the lease."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(1, 4))
    return n


@app.job("renewed", max_attempts=TRIES, retry=RETRY, takes_context=True)
def outlast_lease(ctx: rota.Context, n: int) -> int:
    """Take several leases, in a thread that asks whether it should stop."""
    with record_in_thread(ctx):
        until = time.monotonic() + chance(ctx).uniform(5, 8)
        while time.monotonic() < until:
            ctx.raise_if_cancelled()
            time.sleep(0.05)
    return n


@app.job("bills", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def bill(ctx: rota.Context, n: int) -> None:
    """Commit a row together with the success of the job."""
    async with AsyncExitStack() as attempt:
        await attempt.enter_async_context(record(ctx))
        async with ctx.transaction() as connection:
            await connection.execute("insert into chaos.invoice values (%s)", [ctx.job.id])
            await asyncio.sleep(chance(ctx).uniform(0, 0.05))
            await attempt.aclose()  # the end is recorded before the commit, which ends the claim


@app.job("once", max_attempts=1, retry=RETRY, takes_context=True)
async def once(ctx: rota.Context, n: int) -> int:
    """Begin only once."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))
    return n


@app.job("dead_when_lost", max_attempts=TRIES, on_lost="dead", retry=RETRY, takes_context=True)
def dead_when_lost(ctx: rota.Context, n: int) -> int:
    """Never begin again after its worker was lost with it."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.3))
    return n


@app.job("flaky", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def flaky(ctx: rota.Context, n: int) -> int:
    """Fail at times, in every way that a handler can."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.05))
    match chance(ctx).randrange(20):
        case 0 | 1 | 2 | 3:
            raise RuntimeError("at times")
        case 4:
            raise rota.Dead("no such account")
        case 5:
            raise rota.Cancel("withdrawn")
        case 6:
            raise rota.Retry("not yet", after="1s")
    return n


def name_effect(ctx: rota.Context, n: int) -> str:
    """Return the key of the message that a job is to send."""
    return f"{ctx.job.job_type}:{n // SHARED}"


def pause_s(ctx: rota.Context) -> float:
    """Return how long a handler waits before and after what it must not repeat blindly: then much
    harm comes within an effect."""
    return chance(ctx).uniform(0, 0.8)


def deliver(ctx: rota.Context, effect: rota.records.Effect) -> None:
    """Send the message: the provider is the witness. It is refused at times, and at times there is
    no answer."""
    match chance(ctx).randrange(20):
        case 0:
            raise effect.not_done("the mailbox is full")
        case 1:
            raise ConnectionRefusedError("no provider")
        case 2:
            raise TimeoutError("the provider does not have it")
    open_witness().says("message", ctx, effect.key)
    if chance(ctx).randrange(20) == 3:
        raise TimeoutError("the provider has it")
    effect.result = ctx.job.claims


@app.job("send_skip", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def send_at_most_once(ctx: rota.Context, n: int) -> None:
    """Send a message that nobody may get twice."""
    async with record(ctx):
        async with ctx.effect(name_effect(ctx, n), if_uncertain="skip") as effect:
            if not effect.done:
                await asyncio.sleep(pause_s(ctx))
                deliver(ctx, effect)
                await asyncio.sleep(pause_s(ctx))
        open_witness().says("done", ctx, effect.key)


@app.job("send_repeat", max_attempts=TRIES, retry=RETRY, takes_context=True)
def send_at_least_once(ctx: rota.Context, n: int) -> None:
    """Send a message that must arrive, from a thread."""
    with record_in_thread(ctx):
        send(ctx, n, "repeat")


@app.job("send_dead", process=True, max_attempts=TRIES, retry=RETRY, takes_context=True)
def send_or_give_up(ctx: rota.Context, n: int) -> None:
    """Send a message about which a person decides, from a process of its own."""
    with witness_attempt(ctx):
        send(ctx, n, "dead")


def send(ctx: rota.Context, n: int, if_uncertain: rota.records.IfUncertain) -> None:
    """Send a message from a plain function."""
    with ctx.effect(name_effect(ctx, n), if_uncertain=if_uncertain) as effect:
        if not effect.done:
            time.sleep(pause_s(ctx))
            deliver(ctx, effect)
            time.sleep(pause_s(ctx))
    open_witness().says("done", ctx, effect.key)


@app.job("three_steps", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def take_three_steps(ctx: rota.Context, n: int) -> None:
    """Do three things, one after the other."""
    async with record(ctx):
        for name in STEPS:
            await ctx.step(name, take_step, ctx, name)
            open_witness().says("done", ctx, name)


async def take_step(ctx: rota.Context, name: str) -> int:
    """Note that this step runs."""
    await asyncio.sleep(pause_s(ctx))
    open_witness().says("step", ctx, name)
    await asyncio.sleep(pause_s(ctx))
    return ctx.job.claims


@app.job(
    "in_order",
    ordered=lambda n: f"serial:{n % 6}",
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def run_in_order(ctx: rota.Context, n: int) -> int:
    """Run in a lane of one, fail at times and keep the place meanwhile."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.05))
        fail_at_times(ctx, 0.05)
    return n


@app.job(
    "in_order_too",
    ordered=lambda n: f"serial:{n % 6}",
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
def run_in_order_too(ctx: rota.Context, n: int) -> int:
    """Share those lanes, from a thread."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.1))
    return n


@app.job(
    "in_pairs",
    ordered=rota.Ordered(lambda n: f"pair:{n % 2}", capacity=2),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
def run_in_pairs(ctx: rota.Context, n: int) -> int:
    """Run in a lane of two."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.2))
        fail_at_times(ctx, 0.05)
    return n


@app.job(
    "overtaken",
    ordered=rota.Ordered(lambda n: f"overtaken:{n % 4}", while_retrying="release"),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def let_others_pass(ctx: rota.Context, n: int) -> int:
    """Fail often, and let later jobs of the lane pass."""
    async with record(ctx):
        fail_at_times(ctx, 0.25)
    return n


@app.job(
    "halting",
    ordered=rota.Ordered(lambda n: f"halting:{n % 4}", after_death="halt"),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def halt_lane(ctx: rota.Context, n: int) -> int:
    """Be dead at times, and halt the lane until it is requeued."""
    async with record(ctx):
        if chance(ctx).random() < 0.1:
            raise rota.Dead("not booked")
    return n


def fail_at_times(ctx: rota.Context, share: float) -> None:
    """Raise in this share of the attempts."""
    if chance(ctx).random() < share:
        raise RuntimeError("at times")


@app.job("few", max_running=3, max_attempts=TRIES, retry=RETRY, takes_context=True)
async def run_few(ctx: rota.Context, n: int) -> int:
    """Run three at once, over all workers."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))
    return n


@app.job("narrow", queue=NARROW, max_attempts=TRIES, retry=RETRY, takes_context=True)
def run_narrow(ctx: rota.Context, n: int) -> int:
    """Run in the queue whose cap changes."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.3))
    return n


@app.job(
    LIMITED,
    rate_limit=rota.RateLimit(LIMITED, 3, per="2s", burst=2, key=lambda n: n % 2),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def start_so_often(ctx: rota.Context, n: int) -> int:
    """Start at a limited rate for each key."""
    with witness_attempt(ctx):  # at once: the judge counts by the time of the start
        await asyncio.sleep(0)
    return n


@app.job(
    "guarded",
    breaker=rota.Breaker(
        key=lambda n: f"host{n % 2}", failures=3, within="10s", open_for="1s", max_open="4s"
    ),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def call_host(ctx: rota.Context, n: int) -> int:
    """Call a host that is down at times."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.1))
        if is_down(n % 2, time.time()):
            raise ConnectionRefusedError("the host is down")
    return n


@app.job("piece", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def make_piece(ctx: rota.Context, of: int, number: int) -> int:
    """Be waited for; be dead at times."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.5))
        if chance(ctx).randrange(20) == 0:
            raise rota.Dead("not to be had")
    return number


@app.job("assemble", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def assemble(ctx: rota.Context, n: int) -> dict[str, int]:
    """Enqueue pieces, wait for them, and go on with their results."""
    async with record(ctx):
        made = [
            make_piece.using(key=f"piece:{ctx.job.id}:{number}").new(ctx.job.id, number)
            for number in range(PIECES)
        ]
        pieces = [piece.id for piece in await app.aenqueue_many(made)]
        if not ctx.results:
            raise rota.WaitFor(pieces)
    told = [ctx.results[id_] for id_ in pieces]
    return {"pieces": len(told), "sum": sum(piece.result for piece in told if piece.succeeded)}


def is_down(host: int, at_s: float) -> bool:
    """Whether a host is down: the clock and the seed say it, so all processes agree."""
    seed = os.environ.get("CHAOS_SEED", "")
    return random.Random(f"{seed}:{host}:{int(at_s / DOWN_S)}").random() < DOWN_SHARE


@dataclass(frozen=True, slots=True)
class Item:
    """A job of a type that takes many in one call."""

    n: int


@app.job(
    "in_calls",
    chunk=rota.Chunk(10, wait="50ms"),
    max_attempts=TRIES,
    retry=RETRY,
    takes_context=True,
)
async def take_many(ctx: rota.Context, items: list[Item]) -> list[Any]:
    """Take many jobs at once; at times one of them fails, at times all do."""
    assert [context.job.payload["n"] for context in ctx.items] == [item.n for item in items]
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))
        fail_in_calls(ctx)
    return [
        RuntimeError("at times") if chance(context).random() < 0.1 else None
        for context in ctx.items
    ]


@app.job(
    "in_calls_once",
    chunk=10,
    max_attempts=TRIES,
    on_lost="dead",
    retry=RETRY,
    takes_context=True,
)
def take_many_in_thread(ctx: rota.Context, items: list[Item]) -> None:
    """Take many jobs at once, and never again after the worker was lost with them."""
    with record_in_thread(ctx):
        time.sleep(chance(ctx).uniform(0, 0.3))
        fail_in_calls(ctx)


def fail_in_calls(ctx: rota.Context) -> None:
    """Fail at times, in a way that is no job's fault."""
    if chance(ctx).random() < 0.05:
        raise ConnectionError("at times")


@app.job("split", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def split(ctx: rota.Context, n: int) -> None:
    """Make a batch in the own one. The keys let a second attempt find the batch of the first."""
    async with record(ctx):
        assert ctx.job.batch is not None
        await app.abatch(
            [part.new(n=n, place=place) for place in range(PARTS)],
            then=gather.new(n=n),
            on_failure=chance(ctx).choice(["continue", "wait"]),
            parent=ctx.job.batch,
        )
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))


@app.job(
    "part",
    unique=lambda n, place: f"part:{n}:{place}",
    max_attempts=3,
    retry=RETRY,
    takes_context=True,
)
async def part(ctx: rota.Context, n: int, place: int) -> None:
    """Be a member of a batch in a batch, fail often, and be dead of it at times."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))
        fail_at_times(ctx, 0.25)


@app.job("gather", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def gather(ctx: rota.Context, n: int) -> None:
    """Follow a batch, and read what came of it."""
    async with record(ctx):
        ended = ctx.ended_batch
        assert ended is not None
        assert ended.succeeded + ended.failed == ended.total


@app.schedule(SCHEDULE, "* * * * *", catch_up="latest")
@app.job("scheduled", max_attempts=TRIES, retry=RETRY, takes_context=True)
async def run_each_minute(ctx: rota.Context) -> None:
    """Be enqueued by a schedule."""
    async with record(ctx):
        await asyncio.sleep(chance(ctx).uniform(0, 0.3))


TYPES: list[tuple[int, Any]] = [
    (16, quick),
    (8, bill),
    (10, use_thread),
    (3, near_the_lease),
    (1, outlast_lease),
    (10, once),
    (8, dead_when_lost),
    (8, flaky),
    (2, send_at_most_once),
    (2, send_at_least_once),
    (1, send_or_give_up),
    (2, take_three_steps),
    (4, run_in_order),
    (2, run_in_order_too),
    (2, run_in_pairs),
    (2, let_others_pass),
    (1, halt_lane),
    (2, run_few),
    (2, run_narrow),
    (2, start_so_often),
    (3, call_host),
    (6, take_many),
    (3, take_many_in_thread),
    (2, assemble),
]
"""The share of each in a hundred jobs."""
MEMBERS: list[Any] = [quick, bill, use_thread, once, dead_when_lost, flaky, run_in_order, split]
"""What a batch is made of: jobs that succeed when they are requeued, but those whose effect
somebody has to look after."""


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, even while it is frozen. Linux
    only."""
    if sys.platform == "linux":
        prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_worker() -> bool:
    """Whether this process is a worker: not the run itself, and no process of handlers, which leads
    a session and dies with its worker by Rota's own means."""
    return "CHAOS_WITNESS" in os.environ and os.getsid(0) != os.getpid()


if is_worker():
    end_with_parent()
