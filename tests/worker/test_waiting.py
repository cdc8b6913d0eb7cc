"""Jobs that wait for others, and what follows batches, in workers that are killed or drain."""

from __future__ import annotations

from typing import Any, Unpack

import pytest

import rota
from rota.declare.options import JobOptions
from rota.observe.events import JobSucceeded, JobWaiting
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import notes
from tests.worker.table import Connection, over, put, rows, status, value

PARENTS, NAPS, MEMBERS, INNER = 5, 20, 100, 2
OPEN = """
with opened as materialized (
  select rota.batch_open('{"ended": {"job_type": "tell", "payload": {}}}', 'continue', %s) as batch
),
members as (
  insert into rota.job (job_type, batch)
  select 'nap', o.batch
  from opened o
  cross join generate_series(1, %s)
  returning id
)
select rota.batch_add((select batch from opened), array_agg(id)), (select batch from opened)
from members
"""


@pytest.mark.nightly
@rule("M11", "M30", "M72")
def test_what_waits_and_what_follows_goes_on_once_although_workers_are_killed(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    with connection.transaction():
        [(_, outer)] = rows(connection, OPEN, None, MEMBERS)
        for _ in range(INNER):
            connection.execute(OPEN, [outer, MEMBERS])
    parents = [put(connection, "gather", naps=NAPS) for _ in range(PARENTS)]
    for _ in range(2):
        before = over(connection)
        workers = [start_worker(database, concurrency=10, lease="1s") for _ in range(2)]
        eventually(lambda: over(connection) > before, what="a job ends")  # noqa: B023
        for worker in workers:
            worker.kill()
    last = start_worker(database, concurrency=20, lease="1s")
    left = "select count(*) from rota.job where status <> 'dead'"
    told = "select count(*) from rota.jobs where job_type = 'tell'"
    eventually(
        lambda: (value(connection, left), value(connection, told)) == (0, INNER + 1), 120,
        what="all has ended",
    )  # fmt: skip
    results = rows(connection, "select id, result from rota.jobs where job_type = 'gather'")
    assert sorted(results) == [(id_, NAPS) for id_ in parents]
    naps = "select count(*) from rota.jobs where job_type = 'nap' and batch is null"
    assert value(connection, naps) == PARENTS * NAPS
    said = {what for _, what in notes(last.notes_file)}
    assert {f"gathered {id_} {NAPS}" for id_ in parents} == {
        what for what in said if what.startswith("gathered")
    }
    assert value(connection, "select count(*) from rota.batch_delta") == 0
    # On a busy machine a lease of a second may end under a live worker, and a job be dead of it.
    counts = "select total, succeeded + dead, dead from rota.batches order by id"
    (total, ended, dead), *inner = rows(connection, counts)
    assert (total, ended) == (MEMBERS + INNER, MEMBERS + INNER)
    assert [one[:2] for one in inner] == [(MEMBERS, MEMBERS)] * INNER
    assert f"ended {total} {dead}" in said


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
