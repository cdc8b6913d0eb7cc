"""A lease is renewed while its worker works, and a worker that lost it writes nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota.observe.events import JobHandedBack, JobSucceeded, LeaseLost
from rota.worker.lease_keeper import RENEWALS_A_LEASE
from tests.store.planned import move_clock
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.keeper import KeptByHand
from tests.worker.table import Connection, expire_leases, put, rows, status, value

REAP = "select id from rota.job_reap('-infinity', 100)"
LOST_BEFORE = "update rota.job set losses = 1"
LATER = rota.Fixed("1h", jitter=0)
"""Else a job that is taken away is due again at once, or in ten seconds, and back before a test has
looked at it."""


@rule("M31", "M32", "M33")
async def test_a_job_that_outlasts_its_lease_is_held_by_renewals(
    database: str, connection: Connection
) -> None:
    """On the loop, in a thread, and while a handler blocks the loop."""
    jobs, clock = rota.Jobs(), ManualClock()
    lease_s = 60  # of which a third passes at a time, and no machine is held up for the rest
    over = threading.Event()

    @jobs.job("waits", lease="60s")
    async def waits() -> None:
        await asyncio.to_thread(over.wait, 60)

    @jobs.job("in a thread", lease="60s")
    def in_a_thread() -> None:
        over.wait(60)

    @jobs.job("blocks the loop", lease="60s")
    async def blocks() -> None:
        over.wait(60)

    reaped: list[object] = []
    leases = "select locked_until from rota.job order by id"

    def pass_time() -> None:
        running = "select count(*) = 3 from rota.job where status = 'running'"
        eventually(lambda: value(connection, running))
        for passed in range(1, 2 * RENEWALS_A_LEASE + 1):
            move_clock(connection, f"{passed * lease_s / RENEWALS_A_LEASE} s")
            until = clock.now + lease_s / RENEWALS_A_LEASE
            before = rows(connection, leases)

            def all_renewed(before: list[tuple[object, ...]] = before) -> bool:
                return not {*before} & {*rows(connection, leases)}

            clock.advance_until(all_renewed, step_s=lease_s / 12)
            assert clock.now <= until + lease_s / 6, "in time"
            reaped.extend(rows(connection, REAP))
        over.set()

    for name in ("waits", "in a thread", "blocks the loop"):  # they begin in this order
        put(connection, name)
    passing = asyncio.create_task(asyncio.to_thread(pass_time))
    async with Hand(database, jobs, clock=clock) as hand:
        await hand.heard(JobSucceeded, 3)
    await passing
    assert reaped == []
    held = "select distinct attempts, claims, locked_by from rota.job_history"
    assert rows(connection, held) == [(1, 1, hand.name)]


@rule("M32", "M84")
@pytest.mark.parametrize("handler", ["async", "plain"])
async def test_a_handler_that_lost_its_lease_is_stopped_and_its_worker_writes_nothing(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, handler: str
) -> None:
    jobs = rota.Jobs()
    started, told = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    @jobs.job("async", lease="3s", retry=LATER, takes_context=True)
    async def waits(ctx: rota.Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(ctx.cancelled)
            raise

    @jobs.job("plain", lease="3s", retry=LATER, takes_context=True)
    def asks(ctx: rota.Context) -> None:
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                ctx.raise_if_cancelled()
                time.sleep(0.01)
        except rota.AttemptCancelled as error:
            told.append(error.reason)
            raise

    job = put(connection, handler)
    connection.execute(LOST_BEFORE)
    with caplog.at_level(logging.ERROR, "rota"):
        async with Hand(database, jobs) as hand:
            await asyncio.wait_for(started.wait(), 30)
            after = _take_away(connection, job)
            lost = await hand.heard(LeaseLost)
    assert (lost.job, lost.attempt, lost.claim, lost.worker) == (job, 1, 1, hand.name)
    assert told == ["its lease was lost"]
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
    ] == [lost.text()]
    assert rows(connection, "select * from rota.job") == after, "nothing was written"
    assert rows(connection, "select worker, error_type from rota.attempt") == [
        (hand.name, "LeaseExpired")
    ]


@rule("M31", "M33")
async def test_a_job_that_has_a_slot_is_renewed_before_its_start_is_recorded(
    database: str, connection: Connection
) -> None:
    kept = KeptByHand(database, connection)
    kept.hold()
    kept.attempt.began_at = None  # the answer of job_start is on its way, or the loop is blocked
    kept.clock.advance(60.0)
    await kept.keeper.tick()
    assert kept.attempt.renewed_at == kept.clock.now
    await kept.keeper.close()


@rule("M32", "M33", "M84")
@pytest.mark.parametrize("first_to_end", [1, 2])
async def test_a_worker_that_lost_a_job_and_got_it_again_keeps_the_two_attempts_apart(
    database: str, connection: Connection, first_to_end: int
) -> None:
    jobs = rota.Jobs()
    started, go = (
        {1: threading.Event(), 2: threading.Event()},
        {1: threading.Event(), 2: threading.Event()},
    )

    # So that only the second claim reveals the loss.
    @jobs.job("slow", lease="1h", takes_context=True)
    def slow(ctx: rota.Context) -> int:
        run = ctx.job.losses + 1
        started[run].set()
        go[run].wait(60)
        return run

    job = put(connection, "slow")
    # A notification would make the worker renew all leases at once.
    async with Hand(database, jobs, notify=False, poll_s=0.05) as hand:
        assert await asyncio.to_thread(started[1].wait, 30)
        _take_away(connection, job)
        assert await asyncio.to_thread(started[2].wait, 30)
        go[first_to_end].set()
        if first_to_end == 1:  # the second is held as long as it takes
            await hand.heard(LeaseLost)
            before = value(connection, "select locked_until from rota.job")
            # Now the lease keeper renews all leases that it knows of.
            hand.worker.parts.lease_keeper.check_cancels()
            await aeventually(
                lambda: value(connection, "select locked_until from rota.job") != before
            )
        else:
            await hand.heard(JobSucceeded)
        go[3 - first_to_end].set()
        await hand.heard(LeaseLost)
        await hand.heard(JobSucceeded)
    # That the first lease is lost is said at once, not when its handler gets round to ending.
    assert [
        event.claim for event in hand.events if isinstance(event, LeaseLost | JobSucceeded)
    ] == [1, 3]
    assert rows(connection, "select status, attempts, losses, result from rota.job_history") == [
        ("succeeded", 1, 1, 2)
    ]


def _take_away(connection: Connection, *jobs: int) -> list[tuple[object, ...]]:
    """Let the reaper take the jobs; return their rows then."""
    with connection.transaction():  # or the worker would renew them in between
        expire_leases(connection)
        assert {id_ for (id_,) in rows(connection, REAP)} == {*jobs}
    return rows(connection, "select * from rota.job order by id")


@rule("M22")
@pytest.mark.parametrize("hours", [-3, 3])
async def test_a_job_is_due_by_the_databases_clock(
    database: str, connection: Connection, jobs: rota.Jobs, hours: int
) -> None:
    move_clock(connection, f"{hours} h")
    app, quick = rota.App(database, jobs=[jobs]), jobs.types["quick"]
    there = datetime.now(UTC) + timedelta(hours=hours)
    due = (await quick.using(run_at=there + timedelta(seconds=1)).aenqueue()).id
    delayed = (await quick.using(delay="1s").aenqueue()).id
    not_due = (await quick.using(run_at=there + timedelta(hours=1)).aenqueue()).id
    await app.aclose()
    async with Hand(database, jobs) as hand:
        for job in (put(connection, "quick"), due, delayed):
            await hand.heard(JobSucceeded, job=job)
    assert status(connection, not_due) == "queued"
    late = (
        "select bool_and(started_at - run_at between interval '0' and interval '30 minutes') "
        "from rota.job_history"
    )
    assert value(connection, late) is True, "started_at, too, is by the database's clock"


@rule("M31", "M33")
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "plain"])
async def test_a_handler_does_not_begin_when_its_lease_ran_out_while_its_payload_was_read(
    database: str, connection: Connection, in_a_thread: bool
) -> None:
    jobs = rota.Jobs()
    begun: list[int] = []
    read: list[int] = []

    def slowly(payload: dict[str, Any]) -> dict[str, Any]:
        read.append(1)
        if len(read) == 1:
            # It takes more than three quarters of the lease, and less than all of it.
            hand.worker.attempts[job].claimed_at -= 96
        return payload

    async def handler(n: int) -> None:
        begun.append(n)

    def plain(n: int) -> None:
        begun.append(n)

    jobs.job("slow to read", lease="2m", version=2, upgrade={1: slowly})(
        plain if in_a_thread else handler
    )
    job = put(connection, "slow to read", n=7)
    connection.execute("update rota.job set payload_version = 1")
    # A listener that starts would make the worker renew the lease.
    async with Hand(database, jobs, notify=False) as hand:
        back = await hand.heard(JobHandedBack, job=job)
        assert "before it began" in back.why
        await hand.heard(JobSucceeded, job=job)
    assert (begun, len(read)) == ([7], 2)
    assert rows(connection, "select attempts, losses, claims from rota.jobs") == [(1, 0, 3)]
