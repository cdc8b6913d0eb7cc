"""Jobs that wait for others, in workers that are killed, drain, or have one slot."""

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

PARENTS, NAPS = 20, 40


@pytest.mark.slow
@pytest.mark.waits
@rule("M11", "M30")
def test_jobs_that_wait_go_on_once_although_workers_are_killed(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    parents = [put(connection, "gather", naps=NAPS) for _ in range(PARENTS)]
    for _ in range(5):
        before = over(connection)
        first, second = (start_worker(database, concurrency=10, lease="1s") for _ in range(2))
        eventually(lambda: over(connection) > before, what="a job ends")  # noqa: B023
        first.kill()
        second.kill()
    start_worker(database, concurrency=20, lease="1s")
    left = "select count(*) from rota.job where status <> 'dead'"
    eventually(lambda: value(connection, left) == 0, 120, what="all has ended")
    results = rows(connection, "select id, result from rota.jobs where job_type = 'gather'")
    assert sorted(results) == [(id_, NAPS) for id_ in parents]
    assert value(connection, "select count(*) from rota.jobs where job_type = 'nap'") == (
        PARENTS * NAPS
    )
    gathered = [what for _, what in notes(first.notes_file) if what.startswith("gathered")]
    assert set(gathered) == {f"gathered {id_} {NAPS}" for id_ in parents}


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
async def test_a_drain_ends_when_no_job_can_go_on(database: str, connection: Connection) -> None:
    jobs = rota.Jobs()
    family(jobs)
    first = [put(connection, "child", n=n) for n in range(3)]
    outer = put(connection, "parent", ids=[put(connection, "parent", ids=first)])
    later = put(connection, "child", n=9)
    connection.execute("update rota.job set run_at = now() + interval '1 h' where id = %s", [later])
    waits = put(connection, "parent", ids=[later])
    report = await Hand(database, jobs, drain=True).run()
    assert report.succeeded == 5
    assert value(connection, "select result from rota.jobs where id = %s", outer) == [[0, 1, 2]]
    assert status(connection, waits) == "waiting"


@rule("M11", "M80")
async def test_a_drain_lets_jobs_go_on_that_waited_before_it(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    family(jobs)
    child = put(connection, "child", n=1)
    connection.execute("update rota.job set queue = 'later' where id = %s", [child])
    parent = put(connection, "parent", ids=[child])
    await Hand(database, jobs, drain=True, queues={"default": 1}).run()
    assert status(connection, parent) == "waiting"
    await Hand(database, jobs, drain=True, queues={"default": 1, "later": 1}).run()
    assert status(connection, parent) == "succeeded"


@rule("M11")
async def test_a_job_that_waits_holds_no_slot_and_goes_on_soon(
    database: str, connection: Connection
) -> None:
    """Its worker has one slot, polls rarely and is not notified."""
    jobs = rota.Jobs()
    family(jobs)
    ids = [put(connection, "child", n=n) for n in range(5)]
    connection.execute("update rota.job set priority = -1")
    put(connection, "parent", ids=ids)
    async with Hand(database, jobs, slots=1, poll_s=0.5) as hand:
        await hand.heard(JobWaiting)
        await hand.heard(JobSucceeded, 6)
    assert hand.events.index(await hand.heard(JobWaiting)) < hand.events.index(
        await hand.heard(JobSucceeded)
    )


@rule("M35", "M62", "M33")
async def test_a_job_is_told_though_its_type_has_a_limit_and_begins_once(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    limit = rota.RateLimit("limited", 1000, per="1s")
    family(jobs, rate_limit=limit, max_attempts=1, breaker=rota.Breaker("b"))
    ids = [put(connection, "child", n=n) for n in range(3)]
    parents = [put(connection, "parent", ids=ids) for _ in range(20)]
    report = await Hand(database, jobs, drain=True, slots=5).run()
    assert report.succeeded == 23
    results = rows(connection, "select result from rota.jobs where id = any (%s)", parents)
    assert results == [([0, 1, 2],)] * 20


@rule("M61")
async def test_a_job_that_waits_frees_its_slot_of_a_cap(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    family(jobs, max_running=1)
    child = put(connection, "child", n=1)
    connection.execute("update rota.job set run_at = now() + interval '1 h'")
    parents = [put(connection, "parent", ids=[child]) for _ in range(3)]
    await Hand(database, jobs, drain=True).run()
    assert [status(connection, id_) for id_ in parents] == ["waiting"] * 3
    connection.execute("update rota.job set run_at = now() where id = %s", [child])
    await Hand(database, jobs, drain=True).run()
    assert [status(connection, id_) for id_ in parents] == ["succeeded"] * 3


@rule("M60")
async def test_a_job_that_waits_keeps_its_place_in_its_lane(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    family(jobs, ordered=rota.Ordered(while_retrying="release"))
    child, before, behind = (put(connection, "child", n=n) for n in range(3))
    connection.execute("update rota.job set run_at = now() + interval '1 h' where id = %s", [child])
    parent = put(connection, "parent", ids=[child])
    connection.execute(
        "update rota.job set group_key = 'g', run_at = run_at + (id - %s) * interval '1 ms' "
        "where id in (%s, %s)",
        [parent, parent, behind],
    )
    connection.execute("update rota.job set run_at = now() where id = %s", [behind])
    await Hand(database, jobs, drain=True).run()
    assert (status(connection, before), status(connection, parent)) == ("succeeded", "waiting")
    assert status(connection, behind) in ("queued", "waiting")
    connection.execute("update rota.job set run_at = now() where id = %s", [child])
    await Hand(database, jobs, drain=True).run()
    assert [status(connection, id_) for id_ in (parent, behind)] == ["succeeded"] * 2


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
