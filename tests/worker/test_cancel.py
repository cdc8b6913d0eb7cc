"""A cancel reaches the handler that runs, and the job ends once: cancelled if it stopped for that,
else as it ended."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from psycopg import sql

import rota
from rota.model.outcome import Cancel
from rota.observe.events import (
    JobCancelled,
    JobClaimed,
    JobDead,
    JobFailed,
    JobReaped,
    JobSucceeded,
)
from rota.worker import lease_keeper
from rota.worker.executor import Executor
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.keeper import KeptByHand
from tests.worker.table import Connection, connected, put, rows, value

pytestmark = pytest.mark.waits

ENDS = "select status, cancel_reason, last_error from rota.jobs where id = %s"


def request_cancel(
    connection: Connection, job: int, why: str | None = "not wanted any more"
) -> None:
    """As any program that can run SQL."""
    assert rows(
        connection, "select answer from rota.job_cancel(array[%s::bigint], %s)", job, why
    ) == [("requested",)]


class StoppableHandlers:
    """Handlers that run until they are stopped, and the reasons that they got."""

    def __init__(self) -> None:
        self.jobs = rota.Jobs()
        self.started = threading.Event()
        self.reasons: list[str | None] = []
        self.jobs.job("async", takes_context=True)(self._async)
        self.jobs.job("plain", takes_context=True)(self._plain)
        self.jobs.job("short", lease="4s", takes_context=True)(self._async)
        self.jobs.job("recorded", max_attempts=1, takes_context=True)(self._async)

    async def _async(self, ctx: rota.Context) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.reasons.append(ctx.cancelled)
            raise

    def _plain(self, ctx: rota.Context) -> None:
        self.started.set()
        try:
            while True:
                ctx.raise_if_cancelled()
                time.sleep(0.01)
        except rota.AttemptCancelled as error:
            self.reasons.append(error.reason)
            raise

    async def until_started(self) -> None:
        """Wait until one of them runs."""
        assert await asyncio.to_thread(self.started.wait, 30)


async def until_the_keeper_rests(connection: Connection) -> None:
    """Wait until the lease keeper has asked nothing for a second: after its start, or the
    listener's, it asks by itself."""
    rests = (
        "select count(*) > 0 from pg_stat_activity where datname = current_database() "
        "and application_name = 'rota lease'"
        " and now() - state_change > '1 s'"
    )
    await asyncio.to_thread(
        eventually, lambda: connected(connection, "listen") and value(connection, rests)
    )


@rule("M51", "M81", "M87")
@pytest.mark.parametrize("handler", ["async", "plain", "recorded"])
async def test_a_notification_brings_a_cancel_to_a_handler_whose_next_renewal_is_far_away(
    database: str, connection: Connection, handler: str
) -> None:
    handlers = StoppableHandlers()
    async with Hand(database, handlers.jobs, lease_s=3600) as hand:
        job = put(connection, handler)
        await handlers.until_started()
        await until_the_keeper_rests(connection)
        request_cancel(connection, job)
        cancelled = await hand.heard(JobCancelled)  # the lease's next renewal is 20 minutes away
    assert (cancelled.job, cancelled.reason) == (job, "not wanted any more")
    assert handlers.reasons == ["it was cancelled: not wanted any more"]
    assert rows(connection, ENDS, job) == [
        ("cancelled", "not wanted any more", "not wanted any more")
    ]
    assert rows(connection, "select * from rota.attempt") == []


@rule("M32", "M87")
@pytest.mark.parametrize("how", ["without NOTIFY", "in a drain"])
async def test_without_notifications_the_next_renewal_brings_it(
    database: str, connection: Connection, how: str
) -> None:
    handlers = StoppableHandlers()
    job = put(connection, "short")
    if how == "in a drain":
        hand = Hand(database, handlers.jobs, drain=True)
        running = asyncio.create_task(hand.run())
        await handlers.until_started()
        request_cancel(connection, job, None)
        await running
    else:
        async with Hand(database, handlers.jobs, notify=False) as hand:
            await handlers.until_started()
            request_cancel(connection, job, None)
            await hand.heard(JobCancelled)
    assert handlers.reasons == ["it was cancelled: no reason given"]
    assert rows(connection, ENDS, job) == [("cancelled", None, None)]


@rule("M30", "M87")
@pytest.mark.parametrize("handler", ["async", "plain"])
async def test_a_handler_that_finishes_all_the_same_has_succeeded_and_nothing_else(
    database: str, connection: Connection, handler: str
) -> None:
    jobs = rota.Jobs()
    started = threading.Event()

    @jobs.job("async")
    async def shields() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    @jobs.job("plain", takes_context=True)
    def looks_away(ctx: rota.Context) -> str:
        started.set()
        eventually(lambda: ctx.cancelled is not None)
        return "done"

    async with Hand(database, jobs) as hand:
        job = put(connection, handler)
        await asyncio.to_thread(started.wait, 30)
        request_cancel(connection, job)
        await hand.heard(JobSucceeded)
    assert rows(connection, "select status, result, cancel_reason, last_error from rota.jobs") == [
        ("succeeded", "done", "not wanted any more", None)
    ]
    assert [event for event in hand.events if isinstance(event, JobCancelled | JobFailed)] == []


@rule("M87")
@pytest.mark.parametrize("end", ["raises", "snoozes", "retries"])
async def test_a_handler_that_ends_otherwise_is_cancelled_and_never_tried_again(
    database: str, connection: Connection, end: str
) -> None:
    jobs = rota.Jobs()
    started = threading.Event()

    @jobs.job("work", takes_context=True)
    def work(ctx: rota.Context) -> None:
        started.set()
        eventually(lambda: ctx.cancelled is not None)
        match end:
            case "raises":
                raise OSError("the clean-up failed")
            case "snoozes":
                raise rota.Snooze("1s")
            case _:
                raise rota.Retry(after="1s")

    async with Hand(database, jobs) as hand:
        job = put(connection, "work")
        await asyncio.to_thread(started.wait, 30)
        request_cancel(connection, job)
        assert (await hand.heard(JobCancelled)).reason is not None
    assert hand.report is not None and (hand.report.failed, hand.report.succeeded) == (0, 0)
    assert [row[0] for row in rows(connection, ENDS, job)] == ["cancelled"]
    assert rows(connection, "select outcome, error_type, next_run_at from rota.attempt") == (
        []
        if end == "snoozes"
        else [("cancelled", {"raises": "OSError", "retries": "Retry"}[end], None)]
    )


@rule("M44", "M87")
async def test_a_handler_that_gives_up_leaves_its_job_dead(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    started = threading.Event()

    @jobs.job("work", takes_context=True)
    def work(ctx: rota.Context) -> None:
        started.set()
        eventually(lambda: ctx.cancelled is not None)
        raise rota.Dead("half of it is done")

    async with Hand(database, jobs) as hand:
        job = put(connection, "work")
        await asyncio.to_thread(started.wait, 30)
        request_cancel(connection, job)
        await hand.heard(JobDead)
    assert rows(connection, ENDS, job) == [("dead", "not wanted any more", "half of it is done")]


@rule("M83", "M87")
async def test_a_worker_that_goes_down_before_it_has_heard_ends_the_job_all_the_same(
    database: str, connection: Connection
) -> None:
    handlers = StoppableHandlers()
    async with Hand(database, handlers.jobs, notify=False, grace_s=0.0) as hand:
        job = put(connection, "async")
        await handlers.until_started()
        request_cancel(connection, job)
    assert handlers.reasons == ["the worker is going down"]
    assert [
        (event.job, event.reason) for event in hand.events if isinstance(event, JobCancelled)
    ] == [(job, "not wanted any more")]
    assert rows(connection, ENDS, job) == [
        ("cancelled", "not wanted any more", "not wanted any more")
    ]


@rule("M33", "M87")
async def test_the_reaper_says_that_a_lost_job_was_cancelled(
    database: str, connection: Connection
) -> None:
    handlers = StoppableHandlers()
    job = put(connection, "unknown")
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'gone', "
        "locked_until = now() + interval '1 hour', claims = 1"
    )
    request_cancel(connection, job)
    connection.execute("update rota.job set locked_until = now() - interval '1 hour'")
    async with Hand(database, handlers.jobs) as hand:
        cancelled = await hand.heard(JobCancelled)
    assert (cancelled.job, cancelled.reason, cancelled.worker) == (
        job,
        "not wanted any more",
        "gone",
    )
    assert [event.status for event in hand.events if isinstance(event, JobReaped)] == ["cancelled"]


@rule("M30", "M87")
async def test_a_claimed_job_that_waits_for_a_slot_is_cancelled_without_ever_starting(
    database: str, connection: Connection
) -> None:
    handlers = StoppableHandlers()
    started: list[int] = []

    @handlers.jobs.job("next", takes_context=True)
    async def next_one(ctx: rota.Context) -> None:
        started.append(ctx.job.id)

    async with Hand(database, handlers.jobs, slots=1, buffer_s=60.0) as hand:
        group = hand.part(Executor).groups[0]
        group._aim(50, 50)  # as a fast worker does
        connection.execute(
            "insert into rota.job (job_type, queue, priority) "
            "values ('async', 'default', 0), ('next', 'default', 0)"
        )
        await hand.heard(JobClaimed, 2)
        await handlers.until_started()
        first, second = sorted(hand.worker.attempts)
        await until_the_keeper_rests(connection)
        request_cancel(connection, second)
        await asyncio.to_thread(
            eventually,
            lambda: isinstance(hand.worker.attempts[second].stop_outcome, Cancel),
            what="the buffered job is told",
        )
        request_cancel(connection, first)
        await hand.heard(JobCancelled, 2)
    assert started == []
    assert rows(connection, "select status, started_at from rota.jobs where id = %s", second) == [
        ("cancelled", None)
    ]


@rule("M87")
async def test_a_cancel_while_no_connection_listened_is_found_when_the_worker_listens_again(
    database: str, connection: Connection, admin: Connection
) -> None:
    handlers = StoppableHandlers()
    async with Hand(database, handlers.jobs, lease_s=3600) as hand:
        job = put(connection, "async")
        await handlers.until_started()
        await until_the_keeper_rests(connection)
        name = sql.Identifier(str(value(connection, "select current_database()")))
        # So that the worker cannot listen again too soon.
        admin.execute(sql.SQL("alter database {} allow_connections false").format(name))
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'rota listen'"
        )
        await asyncio.to_thread(eventually, lambda: not connected(connection, "listen"))
        request_cancel(connection, job)
        admin.execute(sql.SQL("alter database {} allow_connections true").format(name))
        # The notification was sent while no connection listened; the next renewal is 20 minutes
        # away.
        await hand.heard(JobCancelled)


@rule("M87")
async def test_a_cancel_that_overtakes_the_answer_of_the_claim_is_heard_too(
    database: str, connection: Connection
) -> None:
    """The notification names a job that the worker does not know yet; its next renewal is 40 s
    away."""
    kept = KeptByHand(database, connection)
    request_cancel(connection, kept.job.id)
    await kept.check_cancels()
    kept.hold()
    for _ in range(2):  # the first only renewed the leases that were known
        pause_s = await kept.keeper.tick()
        assert pause_s is not None
        kept.clock.advance(pause_s)
    await asyncio.sleep(0)
    await kept.keeper.close()
    assert kept.cancelled == [(kept.job.id, "not wanted any more")]


@rule("M88")
async def test_a_thousand_calls_cost_no_thousand_renewals(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "CANCELS_S", 60.0)
    kept = KeptByHand(database, connection)
    kept.hold()
    await kept.check_cancels()
    renewed = value(connection, "select locked_until from rota.job")
    pauses_s = [await kept.check_cancels() for _ in range(10)]
    await kept.keeper.close()
    assert value(connection, "select locked_until from rota.job") == renewed
    assert min(pause_s or 0.0 for pause_s in pauses_s) > 5


@rule("M87")
async def test_a_call_while_the_database_is_away_is_answered_when_it_is_back(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "CANCELS_S", 0.0)
    kept = KeptByHand(database, connection)
    kept.hold()
    await kept.keeper.tick()
    for turn in (kept.check_cancels, kept.keeper.tick):  # both looks that the call asks for fail
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'rota lease'"
        )
        with pytest.raises(rota.DatabaseUnavailable):
            await turn()
        await asyncio.sleep(0)
        await kept.keeper._link._open()
    request_cancel(connection, kept.job.id)
    await kept.keeper.tick()
    await asyncio.sleep(0)
    await kept.keeper.close()
    assert kept.cancelled == [(kept.job.id, "not wanted any more")]
