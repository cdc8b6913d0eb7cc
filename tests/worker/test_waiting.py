"""Jobs that wait for others, in workers and in drains."""

from __future__ import annotations

from typing import Any, Unpack

import rota
from rota.declare.options import JobOptions
from rota.observe.events import JobSucceeded, JobWaiting
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value


def family(jobs: rota.Jobs, **options: Unpack[JobOptions]) -> None:
    """Declare `child`, which waits for nothing, and `parent`, which waits for the jobs that it is
    given."""

    @jobs.job("child")
    async def child(n: int) -> int:
        return n

    @jobs.job("parent", takes_context=True, **options)
    async def parent(ctx: rota.Context, ids: list[int]) -> list[Any]:
        if not ctx.results:
            raise rota.WaitFor(ids)
        return [ctx.results[id_].result for id_ in ids]


@rule("M11", "M80")
async def test_a_drain_lets_jobs_go_on_and_ends_when_none_can(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    family(jobs)
    first = [put(connection, "child", n=n) for n in range(3)]
    outer = put(connection, "parent", ids=[put(connection, "parent", ids=first)])
    later = put(connection, "child", n=9)
    connection.execute("update rota.job set queue = 'later' where id = %s", [later])
    waits = put(connection, "parent", ids=[later])
    report = await Hand(database, jobs, drain=True, queues={"default": 1}).run()
    assert report.succeeded == 5
    assert value(connection, "select result from rota.jobs where id = %s", outer) == [[0, 1, 2]]
    assert status(connection, waits) == "waiting"
    await Hand(database, jobs, drain=True, queues={"default": 1, "later": 1}).run()
    assert status(connection, waits) == "succeeded"


@rule("M11", "M33", "M35", "M62")
async def test_a_job_that_waits_holds_no_slot_and_begins_once_though_its_type_has_gates(
    database: str, connection: Connection
) -> None:
    """Its worker has one slot, polls rarely and is not notified."""
    jobs = rota.Jobs()
    limit = rota.RateLimit("limited", 1000, per="1s")
    family(jobs, rate_limit=limit, max_attempts=1, breaker=rota.Breaker("b"))
    ids = [put(connection, "child", n=n) for n in range(5)]
    connection.execute("update rota.job set priority = -1")
    parents = [put(connection, "parent", ids=ids) for _ in range(2)]
    async with Hand(database, jobs, slots=1, poll_s=0.5) as hand:
        await hand.heard(JobWaiting, 2)
        await hand.heard(JobSucceeded, 7)
    results = rows(
        connection, "select result, attempts from rota.jobs where id = any (%s)", parents
    )
    assert results == [([0, 1, 2, 3, 4], 1)] * 2


@rule("M11")
async def test_a_job_whose_results_cannot_be_read_is_handed_back_and_holds_up_no_other(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    family(jobs)
    child = put(connection, "child", n=1)
    parent = put(connection, "parent", ids=[child])
    connection.execute("alter function rota.results_of(bigint[]) rename to results")
    async with Hand(database, jobs, slots=1, poll_s=0.1) as hand:
        await hand.heard(JobWaiting)
        await hand.until(lambda: "cannot be read" in str(hand.events[-1]))
        put(connection, "child", n=2)
        await hand.heard(JobSucceeded, 2)
        connection.execute("alter function rota.results(bigint[]) rename to results_of")
        connection.execute("update rota.job set run_at = now()")
        await hand.heard(JobSucceeded, job=parent)
    assert value(connection, "select attempts from rota.jobs where id = %s", parent) == 1
