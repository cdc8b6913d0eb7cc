"""A cancel reaches the handler that runs, and the job ends once: cancelled if it stopped for that,
else as it ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from psycopg import sql

import rota
from rota.model.job import Enqueued, Status
from rota.observe.events import (
    Event,
    JobCancelled,
    JobClaimed,
    JobDead,
    JobReaped,
    JobSucceeded,
    LeaseLost,
)
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.keeper import KeptByHand
from tests.worker.table import Connection, connected, leave_behind, put, rows, value

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
        self.started: list[int] = []
        self.reasons: list[str | None] = []
        self.jobs.job("async", takes_context=True)(self._async)
        self.jobs.job("plain", takes_context=True)(self._plain)
        self.jobs.job("short", lease="4s", takes_context=True)(self._async)
        self.jobs.job("recorded", max_attempts=1, takes_context=True)(self._async)

    async def _async(self, ctx: rota.Context) -> None:
        self.started.append(ctx.job.id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.reasons.append(ctx.cancelled)
            raise

    def _plain(self, ctx: rota.Context) -> None:
        self.started.append(ctx.job.id)
        try:
            while True:
                ctx.raise_if_cancelled()
                time.sleep(0.01)
        except rota.AttemptCancelled as error:
            self.reasons.append(error.reason)
            raise

    async def until_started(self, count: int = 1) -> None:
        """Wait until so many of them run."""
        await aeventually(lambda: len(self.started) >= count)


async def until_the_keeper_rests(connection: Connection) -> None:
    """Wait until the lease keeper has asked nothing for a second: after its start, or the
    listener's, it asks by itself."""
    rests = (
        "select count(*) > 0 from pg_stat_activity where datname = current_database() "
        "and application_name = 'rota lease'"
        " and now() - state_change > '1 s'"
    )
    await aeventually(lambda: connected(connection, "listen") and value(connection, rests))


@rule("M51", "M81", "M87")
async def test_a_notification_brings_a_cancel_to_a_handler_whose_next_renewal_is_far_away(
    database: str, connection: Connection
) -> None:
    handlers = StoppableHandlers()
    async with Hand(database, handlers.jobs, lease_s=3600) as hand:
        jobs = [put(connection, handler) for handler in ("async", "plain", "recorded")]
        await hand.heard(JobClaimed, 3)
        await handlers.until_started(3)
        await until_the_keeper_rests(connection)
        for job in jobs:
            request_cancel(connection, job)
        cancelled = await hand.heard(JobCancelled, 3)  # the next renewal is 20 minutes away
    assert cancelled.job in jobs and cancelled.reason == "not wanted any more"
    assert handlers.reasons == ["it was cancelled: not wanted any more"] * 3
    for job in jobs:
        assert rows(connection, ENDS, job) == [
            ("cancelled", "not wanted any more", "not wanted any more")
        ]
    assert rows(connection, "select * from rota.attempt") == []


@rule("M32", "M87")
async def test_without_notifications_the_next_renewal_brings_it(
    database: str, connection: Connection
) -> None:
    handlers = StoppableHandlers()
    job = put(connection, "short")
    hand = Hand(database, handlers.jobs, drain=True)
    running = asyncio.create_task(hand.run())
    await handlers.until_started()
    request_cancel(connection, job, None)
    await running
    assert handlers.reasons == ["it was cancelled: no reason given"]
    assert rows(connection, ENDS, job) == [("cancelled", None, None)]


@rule("M30", "M44", "M87")
async def test_a_handler_that_was_to_stop_and_ends_otherwise_is_never_tried_again(
    database: str, connection: Connection
) -> None:
    """One that finishes all the same has succeeded, and one that gives up is dead."""
    jobs = rota.Jobs()
    started: list[int] = []
    errors = {
        "raises": OSError("the clean-up failed"),
        "snoozes": rota.Snooze("1s"),
        "retries": rota.Retry(after="1s"),
        "gives up": rota.Dead("half of it is done"),
    }

    @jobs.job("shields", takes_context=True)
    async def shields(ctx: rota.Context) -> str:
        started.append(ctx.job.id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    @jobs.job("looks away", takes_context=True)
    def looks_away(ctx: rota.Context, end: str) -> str:
        started.append(ctx.job.id)
        eventually(lambda: ctx.cancelled is not None)
        if end in errors:
            raise errors[end]
        return "done"

    cancelled = JobCancelled, "cancelled", "not wanted any more"
    succeeded = JobSucceeded, "succeeded", None
    stands: dict[str, tuple[type[Event], str, str | None]] = {
        **dict.fromkeys(("raises", "snoozes", "retries"), cancelled),
        "gives up": (JobDead, "dead", "half of it is done"),
        **dict.fromkeys(("returns", "shields"), succeeded),
    }
    async with Hand(database, jobs) as hand:
        of = {end: put(connection, "looks away", end=end) for end in [*errors, "returns"]}
        of["shields"] = put(connection, "shields")
        await aeventually(lambda: len(started) == len(of))
        for job in of.values():
            request_cancel(connection, job)
        for end, (kind, *_) in stands.items():
            await hand.heard(kind, job=of[end])
    assert hand.report is not None and (hand.report.failed, hand.report.dead) == (0, 1)
    for end, (_, status, error) in stands.items():
        assert rows(connection, ENDS, of[end]) == [(status, "not wanted any more", error)], end
    kept = "select error_type, outcome, next_run_at from rota.attempt order by job"
    assert rows(connection, kept) == [
        ("OSError", "cancelled", None), ("Retry", "cancelled", None), ("Dead", "dead", None)
    ]  # fmt: skip


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
    leave_behind(connection, job)
    request_cancel(connection, job)
    async with Hand(database, handlers.jobs) as hand:
        cancelled = await hand.heard(JobCancelled)
    assert (cancelled.job, cancelled.reason, cancelled.worker) == (
        job,
        "not wanted any more",
        "gone",
    )
    assert [event.status for event in hand.events if isinstance(event, JobReaped)] == ["cancelled"]


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
        await aeventually(lambda: not connected(connection, "listen"))
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


@rule("M32", "M81", "M87")
@pytest.mark.parametrize("action", ["retry", "discard"])
async def test_a_worker_learns_that_its_job_was_taken_and_the_next_attempt_begins_after_that(
    database: str, connection: Connection, action: str
) -> None:
    handlers, app, ran = StoppableHandlers(), rota.App(database), []

    @handlers.jobs.job("again", takes_context=True)
    async def again(ctx: rota.Context) -> None:
        ran.append(ctx.job.claims)
        if ctx.job.claims == 1:
            await handlers._async(ctx)

    async with Hand(database, handlers.jobs, lease_s=3600) as hand:
        job = put(connection, "again")
        await handlers.until_started()
        await until_the_keeper_rests(connection)
        doing: Any = app.aretry if action == "retry" else app.jobs.adiscard
        stands = await doing(job, why="hangs")
        await hand.heard(LeaseLost)  # the next renewal is 20 minutes away
        if action == "retry":
            await hand.heard(JobSucceeded)
    await app.aclose()
    assert len(handlers.reasons) == 1
    if action == "discard":
        assert (stands, ran) == (Status.DEAD, [1])
        assert rows(connection, "select status, claims from rota.jobs") == [("dead", 2)]
    else:
        assert (stands, ran) == (Enqueued(job, False, "queued"), [1, 3])
        assert rows(connection, "select status, attempts, claims from rota.jobs") == [
            ("succeeded", 1, 3)
        ]
    assert rows(connection, "select error_type, outcome from rota.attempt") == [
        ("LeaseTaken", "queued") if action == "retry" else ("Discarded", "dead")
    ]
