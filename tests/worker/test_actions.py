"""A job that is taken from its worker: a notification tells the worker, its handler is stopped, and
nothing more is written for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota.model.job import Enqueued, Status
from rota.observe.events import JobSucceeded, LeaseLost, WorkerStarted
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows
from tests.worker.test_cancel import StoppableHandlers, until_the_keeper_rests

pytestmark = pytest.mark.waits


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


@rule("M30", "M81", "M87")
async def test_a_job_that_is_moved_to_now_or_to_another_queue_starts_at_once(
    database: str, connection: Connection
) -> None:
    jobs, app = rota.Jobs(), rota.App(database)

    @jobs.job("t", queue="served")
    async def work() -> None: ...

    async with Hand(database, jobs, queues={"served": 1}, poll_s=3600) as hand:
        await hand.heard(WorkerStarted)
        later, elsewhere = [
            row[0]
            for row in rows(
                connection,
                "insert into rota.job (job_type, queue, run_at) values "
                "('t', 'served', rota.clock() + interval '1 h'), ('t', 'other', rota.clock()) "
                "returning id",
            )
        ]
        connection.execute(
            "update rota.job set run_at = rota.clock() - interval '2 h' where id = %s", [elsewhere]
        )
        moves: list[tuple[int, Any]] = [(later, {"delay": "0s"}), (elsewhere, {"queue": "served"})]
        for job, moved in moves:
            await asyncio.to_thread(eventually, lambda: _waits(connection))
            await app.jobs.areschedule(job, **moved, why="now")
            await hand.heard(JobSucceeded, job=job)  # the next poll is an hour away
    await app.aclose()


def _waits(connection: Connection) -> bool:
    """Whether the worker waits for a wake-up."""
    asked = "select exists (select from rota.queue where notify_until > rota.clock())"
    return rows(connection, asked) == [(True,)]
