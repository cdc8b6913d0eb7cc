"""What a handler can do wrong: run too long, raise what ends processes, hold on to things. It ends
the attempt, never the worker."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

import rota
from rota.observe.events import HandlerAbandoned, JobFailed, JobSucceeded, LeaseLost
from rota.worker.executor import Executor
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value

FIXED = rota.Fixed("1m", jitter=0)


@dataclass
class Doc:
    id: int


@rule("M21", "M35")
async def test_a_job_may_run_for_as_long_as_it_was_enqueued_with_whatever_its_type_says(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    app = rota.App(database, jobs=[jobs])
    go = asyncio.Event()

    @jobs.job("patient", timeout="1h", retry=FIXED)
    async def patient() -> None:
        await asyncio.Event().wait()

    @jobs.job("hasty", timeout="0.3s", retry=FIXED)
    async def hasty() -> None:
        await go.wait()

    short = (await patient.using(timeout="0.2s").aenqueue()).id
    long = (await hasty.using(timeout="1h").aenqueue()).id
    async with Hand(database, jobs) as hand:
        failed = await hand.heard(JobFailed, job=short)
        await hand.heard(JobFailed, job=(await hasty.aenqueue()).id)
        go.set()  # later than the type's time after the start of both
        await hand.heard(JobSucceeded, job=long)
    assert "longer than its timeout of 0.2 s" in failed.failure.message
    ended = await app.aget(long)
    assert (ended.timeout_s, ended.timeout) == (3600.0, timedelta(hours=1))
    await app.aclose()


@rule("M35")
async def test_a_handler_reads_how_much_of_its_timeout_is_left_and_can_stop_before(
    database: str, connection: Connection
) -> None:
    jobs, clock = rota.Jobs(), ManualClock()
    looked: list[rota.Context] = []
    left_s: list[float] = []

    def look(ctx: rota.Context) -> None:
        looked.append(ctx)
        clock.advance(4)
        left_s.append(ctx.time_left_s)

    @jobs.job("plain", takes_context=True)
    def plain(ctx: rota.Context) -> None:
        look(ctx)

    @jobs.job("many", timeout="50s", chunk=10, takes_context=True)
    def many(ctx: rota.Context, docs: list[Doc]) -> None:
        look(ctx)

    @jobs.job("stops", timeout="60s", takes_context=True)
    async def stops(ctx: rota.Context) -> str:
        look(ctx)
        try:
            async with asyncio.timeout(ctx.time_left_s - 60):
                await asyncio.Event().wait()
        except TimeoutError:
            return "saved"
        return "all done"

    put(connection, "plain")
    connection.execute("update rota.job set timeout = '40 s'")
    put(connection, "many", id=1)
    stopped = put(connection, "stops")
    await Hand(database, jobs, slots=1, clock=clock, drain=True).run()
    assert left_s == [36.0, 46.0, 56.0]
    assert [ctx.time_left_s for ctx in looked] == [0.0] * 3, "each attempt is over"
    assert value(connection, "select result from rota.jobs where id = %s", stopped) == "saved"
    assert rota.Context(looked[0].job, "test").time_left_s == math.inf


@rule("M35")
async def test_a_thread_that_runs_over_its_time_is_recorded_at_once_and_its_slot_is_given_up(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = threading.Event()
    told: list[str | None] = []

    @jobs.job("hangs", timeout="0.3s", retry=FIXED, takes_context=True)
    def hangs(ctx: rota.Context) -> str:
        go.wait(60)
        told.append(ctx.cancelled)
        return "too late"

    @jobs.job("next")
    def next_one() -> None: ...

    hanging = put(connection, "hangs")
    async with Hand(database, jobs, slots=2) as hand:
        abandoned = await hand.heard(HandlerAbandoned)
        assert (abandoned.job, abandoned.abandoned, abandoned.slots) == (hanging, 1, 2)
        await hand.heard(JobFailed, job=hanging)
        both_slots = [put(connection, "next"), put(connection, "next")]
        for job in both_slots:
            await hand.heard(JobSucceeded, job=job)
        go.set()
        # Until then the worker counts it as running.
        await aeventually(lambda: not hand.part(Executor).stopper.abandoned, 30)
        await hand.heard(JobSucceeded, job=put(connection, "next"))
    assert told == ["it ran longer than its timeout of 0.3 s"]
    assert not [event for event in hand.events if isinstance(event, LeaseLost)], (
        "it ended once, when its time was over"
    )
    assert rows(connection, "select status, attempts, claims, error_type from rota.job") == [
        ("failed", 1, 2, "rota.errors.AttemptTimeout")
    ]
    assert value(connection, "select count(*) from rota.attempt") == 1


@rule("M35")
async def test_after_as_many_abandoned_handlers_as_slots_the_worker_finishes_what_runs_and_ends(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go, running = threading.Event(), threading.Event()
    finish = asyncio.Event()

    @jobs.job("hangs", timeout="0.3s", retry=FIXED)
    def hangs() -> None:
        go.wait(60)

    @jobs.job("honest")
    async def honest() -> None:
        running.set()
        await finish.wait()

    hand = Hand(database, jobs, slots=2)
    put(connection, "hangs")
    put(connection, "hangs")
    working = asyncio.create_task(hand.run())
    await aeventually(
        lambda: sum(isinstance(event, HandlerAbandoned) for event in hand.events) >= 1
    )
    put(connection, "honest")
    await aeventually(
        lambda: sum(isinstance(event, HandlerAbandoned) for event in hand.events) == 2
    )
    finish.set()
    try:
        with pytest.raises(rota.errors.WorkerExhausted, match="hangs, hangs") as ended:
            await asyncio.wait_for(working, 30)
    finally:
        go.set()
    assert ended.value.exit_code == 4
    assert value(connection, "select count(*) from rota.job where status = 'running'") == 0
    assert (
        value(
            connection,
            "select count(*) from rota.attempt where error_type = 'rota.errors.AttemptTimeout'",
        )
        == 2
    )
    [(stood,)] = rows(connection, "select status from rota.jobs where job_type = 'honest'")
    assert stood == ("succeeded" if running.is_set() else "queued"), (
        "what ran was finished, what did not was handed back"
    )


@rule("M2", "M43")
async def test_what_would_end_a_process_ends_only_the_attempt(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    errors = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]

    @jobs.job("plain", retry=FIXED)
    def plain(which: int) -> None:
        raise errors[which]("from a handler")

    @jobs.job("async", retry=FIXED)
    async def on_the_loop(which: int) -> None:
        raise errors[which]("from a handler")

    jobs.job("next")(_nothing)
    failing = {
        (kind, which): put(connection, kind, which=which)
        for which in range(len(errors))
        for kind in ("plain", "async")
    }
    async with Hand(database, jobs, slots=1) as hand:
        await hand.heard(JobFailed, len(failing))
        await hand.heard(JobSucceeded, job=put(connection, "next"))
    for (kind, which), job in failing.items():
        read = "select status, error_type from rota.job where id = %s"
        [(stored, error_type)] = rows(connection, read, job)
        name = errors[which].__name__
        assert (stored, error_type.rpartition(".")[2]) == ("failed", name), kind


@rule("M34")
async def test_no_transaction_is_open_while_a_handler_works(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = threading.Event()

    @jobs.job("plain")
    def plain() -> None:
        go.wait(60)

    @jobs.job("async")
    async def waits() -> None:
        await asyncio.to_thread(go.wait, 60)

    both = [put(connection, "plain"), put(connection, "async")]
    async with Hand(database, jobs, slots=2, urgent_slots=0) as hand:
        running = "select count(*) = 2 from rota.job where status = 'running'"
        await aeventually(lambda: value(connection, running))
        # Upkeep, which goes on meanwhile, has a transaction now and then; one that is for the
        # handler lasts as long as that.
        open_now = (
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and application_name like 'rota %%' and xact_start is not null"
        )
        locks = (
            "select count(*) from pg_locks l join pg_stat_activity a using (pid)"
            " where a.application_name like 'rota %%' and a.datname = current_database() "
            "and l.locktype <> 'virtualxid'"
        )
        await aeventually(lambda: value(connection, open_now) == value(connection, locks) == 0)
        assert value(connection, running) is True
        go.set()
        for job in both:
            await hand.heard(JobSucceeded, job=job)


def _nothing() -> None: ...
