"""What a handler can do wrong: run too long, raise what ends processes, hold on to things. It ends
the attempt, never the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

import pytest

import rota
from rota.observe.events import HandlerAbandoned, JobFailed, JobHandedBack, JobSucceeded, LeaseLost
from rota.worker.executor import Executor
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, until_asked, value

pytestmark = pytest.mark.waits

FIXED = rota.Fixed("1m", jitter=0)


@rule("M35", "M40", "M41")
async def test_an_async_handler_that_runs_over_its_time_is_stopped_and_tried_again(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    why: list[str | None] = []

    @jobs.job("hangs", timeout="0.3s", retry=FIXED, takes_context=True)
    async def hangs(ctx: rota.Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            why.append(ctx.cancelled)

    job = put(connection, "hangs")
    async with Hand(database, jobs) as hand:
        await hand.heard(JobFailed, job=job)
    assert why == ["it ran longer than its timeout of 0.3 s"]
    assert rows(
        connection,
        "select status, attempts, error_type, verdict, run_at - failed_at = interval '1 minute' "
        "from rota.job",
    ) == [("failed", 1, "rota.errors.AttemptTimeout", "transient", True)]
    assert (
        value(connection, "select finished_at - started_at >= interval '0.3 s' from rota.attempt")
        is True
    )


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
        await asyncio.to_thread(eventually, lambda: not hand.part(Executor).abandoned, 30)
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
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "plain"])
async def test_after_as_many_abandoned_handlers_as_slots_the_worker_finishes_what_runs_and_ends(
    database: str, connection: Connection, in_a_thread: bool
) -> None:
    jobs = rota.Jobs()
    go, running = threading.Event(), threading.Event()
    finish = asyncio.Event()

    async def swallows() -> None:
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    def hangs() -> None:
        go.wait(60)

    jobs.job("hangs", timeout="0.3s", retry=FIXED)(hangs if in_a_thread else swallows)

    @jobs.job("honest")
    async def honest() -> None:
        running.set()
        await finish.wait()

    hand = Hand(database, jobs, slots=2)
    put(connection, "hangs")
    put(connection, "hangs")
    working = asyncio.create_task(hand.run())
    await asyncio.to_thread(
        eventually, lambda: sum(isinstance(event, HandlerAbandoned) for event in hand.events) >= 1
    )
    put(connection, "honest")
    await asyncio.to_thread(
        eventually, lambda: sum(isinstance(event, HandlerAbandoned) for event in hand.events) == 2
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


@rule("M35", "M42")
async def test_a_job_that_runs_over_its_time_on_its_last_attempt_is_dead(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    @jobs.job("hangs", timeout="0.2s", max_attempts=1)
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = put(connection, "hangs")
    async with Hand(database, jobs):
        await asyncio.to_thread(eventually, lambda: status(connection, job) == "dead")


def raises(error: type[BaseException]) -> Callable[[], NoReturn]:
    def handler() -> NoReturn:
        raise error("from a handler")

    return handler


@rule("M2", "M43")
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError,
        SystemExit,
        KeyboardInterrupt,
        MemoryError,
        GeneratorExit,
        StopIteration,
        RecursionError,
    ],
)
async def test_what_would_end_a_process_ends_only_the_attempt(
    database: str, connection: Connection, error: type[BaseException], in_a_thread: bool
) -> None:
    jobs = rota.Jobs()
    fail = raises(error)

    async def handler() -> None:
        fail()

    jobs.job("fails", retry=FIXED)(fail if in_a_thread else handler)
    jobs.job("next")(_nothing)
    failing = put(connection, "fails")
    async with Hand(database, jobs, slots=1) as hand:
        await hand.heard(JobFailed, job=failing)
        after = put(connection, "next")
        await hand.heard(JobSucceeded, job=after)
    [(stored, error_type)] = rows(connection, "select status, error_type from rota.job")
    assert stored == "failed"
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
    assert error_type.rpartition(".")[2] == (
        "RuntimeError" if error is StopIteration and not in_a_thread else error.__name__
    )


@rule("M2")
async def test_an_error_that_cannot_be_shown_or_stored_as_it_is_fails_its_own_job_only(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    texts: list[Exception] = [
        ValueError("a\0b"),
        ValueError("\ud800"),
        ValueError("x" * 10_000_000),
        UnspeakableError(),
    ]

    @jobs.job("fails", retry=FIXED)
    async def fails(which: int) -> None:
        raise texts[which]

    @jobs.job("returns")
    async def returns(which: int) -> object:
        return ["a\0b", "\ud800", float("nan"), 2**70, object()][which]

    ids = [put(connection, "fails", which=which) for which in range(len(texts))]
    ids += [put(connection, "returns", which=which) for which in range(5)]
    async with Hand(database, jobs):
        await asyncio.to_thread(
            eventually, lambda: {status(connection, job) for job in ids} == {"failed", "succeeded"}
        )
    assert value(connection, "select count(*) from rota.job where status = 'failed'") == len(texts)
    assert value(connection, "select count(*) from rota.job_history") == 5


@rule("M34")
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "plain"])
async def test_no_transaction_is_open_while_a_handler_works(
    database: str, connection: Connection, in_a_thread: bool
) -> None:
    jobs = rota.Jobs()
    go = threading.Event()

    @jobs.job("plain")
    def plain() -> None:
        go.wait(60)

    @jobs.job("async")
    async def waits() -> None:
        await asyncio.to_thread(go.wait, 60)

    job = put(connection, "plain" if in_a_thread else "async")
    async with Hand(database, jobs, slots=1) as hand:
        await asyncio.to_thread(eventually, lambda: status(connection, job) == "running")
        # Upkeep, which goes on meanwhile, has a transaction now and then; one that is for the
        # handler lasts as long as that.
        open_now = (
            "select coalesce(json_agg(json_build_array(application_name, state, query)), '[]') "
            "from pg_stat_activity"
            " where datname = current_database() and application_name like 'rota %%' "
            "and xact_start is not null"
        )
        await asyncio.to_thread(eventually, lambda: value(connection, open_now) == [])
        locks = (
            "select count(*) from pg_locks l join pg_stat_activity a using (pid)"
            " where a.application_name like 'rota %%' and a.datname = current_database() "
            "and l.locktype <> 'virtualxid'"
        )
        await asyncio.to_thread(eventually, lambda: value(connection, locks) == 0)
        assert status(connection, job) == "running"
        go.set()
        await hand.heard(JobSucceeded)


def _nothing() -> None: ...


@rule("M35", "M83")
@pytest.mark.parametrize("end", ["timeout", "cancel"])
async def test_a_stop_that_a_task_group_wraps_is_a_stop(
    database: str, connection: Connection, end: str
) -> None:
    jobs = rota.Jobs()
    running = asyncio.Event()

    @jobs.job(
        "grouped", timeout="0.3s" if end == "timeout" else "1m", max_attempts=1, takes_context=True
    )
    async def grouped(ctx: rota.Context) -> None:
        async def part() -> None:
            running.set()
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
                ctx.raise_if_cancelled()

        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    job = put(connection, "grouped")
    async with Hand(database, jobs):
        await asyncio.wait_for(running.wait(), 30)
        if end == "cancel":
            value(
                connection, "select status from rota.job_cancel(array[%s]::bigint[], 'typo')", job
            )
        await asyncio.to_thread(
            eventually, lambda: status(connection, job) in ("dead", "cancelled")
        )
    assert rows(connection, "select status, error_type from rota.jobs") == [
        ("dead", "rota.errors.AttemptTimeout") if end == "timeout" else ("cancelled", None)
    ]


@rule("M83")
async def test_a_plain_function_that_is_stopped_at_shutdown_has_a_moment_to_end(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = rota.Jobs()
    running, tidies, tidy_now = threading.Event(), threading.Event(), threading.Event()

    @jobs.job("tidy", takes_context=True)
    def tidy(ctx: rota.Context) -> None:
        running.set()
        try:
            while True:
                ctx.raise_if_cancelled()
                threading.Event().wait(0.02)
        finally:
            tidies.set()
            tidy_now.wait(60)

    monkeypatch.setattr("rota.worker.executor.ASYNC_STOP_S", 60.0)
    put(connection, "tidy")
    async with Hand(database, jobs, grace_s=0.0) as hand:
        await asyncio.to_thread(running.wait, 30)
        [attempt] = hand.worker.attempts.values()
        hand.worker.stop()
        await asyncio.to_thread(tidies.wait, 30)
        await hand.part(Executor).tick()  # this is when an attempt ends that is not waited for
        has_ended = attempt.is_over
        tidy_now.set()
        back = await hand.heard(JobHandedBack)
    assert not has_ended
    assert back.why == "the worker went down while the handler ran"


@rule("M32")
async def test_a_handler_that_lost_its_lease_is_stopped_once_and_can_clean_up(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.executor.ASYNC_STOP_S", 60.0)
    jobs = rota.Jobs()
    running, told, go, over = (asyncio.Event() for _ in range(4))
    cleaned: list[bool] = []

    @jobs.job("cleans", lease="1s")
    async def cleans() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await go.wait()  # its cleaning up
            cleaned.append(True)
            raise
        finally:
            over.set()

    put(connection, "cleans")
    async with Hand(database, jobs) as hand:
        await asyncio.wait_for(running.wait(), 30)
        connection.execute(
            "update rota.job set status = 'queued', locked_by = null, locked_until = null, "
            "claims = claims + 1, run_at = 'tomorrow'"
        )
        await asyncio.wait_for(told.wait(), 30)
        # Of so many questions some have been asked and answered since: what the lease keeper makes
        # of them reaches the handler before `go`.
        await asyncio.to_thread(until_asked, connection, "lease", 5, unless=over.is_set)
        go.set()
        await hand.heard(LeaseLost)
    assert cleaned == [True]
