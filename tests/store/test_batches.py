"""Batches: how their members are counted, and what follows them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import psycopg
import pytest

import rota
from rota.model.job import Status
from rota.model.settle import Transition
from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level
from rota.store import ops
from tests.store.work import BEGINNING, GIVE_UP, Connection, Hand
from tests.support.rules import rule


@pytest.fixture
def shop(app: rota.App) -> rota.App:
    """An App with the types `page` (dead at once if n < 0) and `report`."""

    @app.job("page", max_attempts=1)
    async def page(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n

    @app.job("report", takes_context=True)
    async def report(ctx: rota.Context) -> dict[str, Any]:
        return {"of": ctx.ended_batch.total, "failed": ctx.ended_batch.failed}

    app.sync()
    return app


def page(app: rota.App, n: int) -> Any:
    return app.types["page"].new(n)


def report(app: rota.App) -> Any:
    return app.types["report"].new()


def count_reports(app: rota.App) -> int:
    return len(app.find(job_type="report"))


def work(connection: Connection) -> int:
    """End all jobs that are due as their handlers would, and count them, until nothing follows;
    return how many."""
    hand, ended = Hand(connection, types=["page", "report"]), 0
    for _ in range(20):
        hand.run(ops.fold_all_batches())
        jobs = hand.claim().jobs
        if not jobs:
            return ended
        ended += len(jobs)
        hand.settle(*((job, _choose_end(job)) for job in jobs))
    raise AssertionError("a job follows again and again")


def _choose_end(job: rota.Job) -> Transition:
    n = job.payload.get("n", 0)
    return GIVE_UP if n < 0 else Transition("succeed", Status.SUCCEEDED, result_json=str(n))


@rule("M72")
def test_what_follows_is_enqueued_once_when_the_last_member_has_ended(shop: rota.App) -> None:
    made = shop.batch([page(shop, n) for n in range(30)], then=report(shop))
    assert [job.created for job in made.jobs] == [True] * 30
    before = shop.batches.get(made.id)
    assert (before.total, before.live, before.outcome, before.then_job) == (30, 30, None, None)
    shop.batch([page(shop, 2)], parent=made.id)
    assert shop.drain().succeeded == 32, "it does not end before the outer batch is told"
    after = shop.batches.get(made.id)
    assert (after.succeeded, after.live, after.outcome) == (31, 0, "succeeded")
    [told] = shop.find(job_type="report")
    assert (told.id, told.result) == (after.then_job, {"of": 31, "failed": 0})


@rule("M72")
def test_dead_cancelled_discarded_and_expired_members_have_ended(
    shop: rota.App, connection: Connection
) -> None:
    jobs = [page(shop, n) for n in (1, -1, 2, 3)]
    jobs += [page(shop, 4).using(delay="1h", expires="2h"), page(shop, 5).using(delay="1h")]
    made = shop.batch(jobs, then=report(shop))
    cancelled, _, expired, discarded = (job.id for job in made.jobs[2:])
    shop.cancel(cancelled)
    shop.jobs.discard(discarded)
    work(connection)
    assert count_reports(shop) == 0
    connection.execute(
        "update rota.job set run_at = now() - interval '2 h', "
        "expires_at = now() - interval '1 s' where id = %s",
        [expired],
    )
    Hand(connection).run(ops.expire("w", BEGINNING, 0, 10))
    work(connection)
    read = shop.batches.get(made.id)
    assert (read.succeeded, read.dead, read.cancelled, read.outcome) == (2, 3, 1, "failed")
    assert count_reports(shop) == 1


@rule("M44", "M72")
def test_skip_holds_what_follows_until_requeued_members_have_succeeded(
    shop: rota.App, connection: Connection
) -> None:
    made = shop.batch([page(shop, n) for n in (1, -1)], then=report(shop), on_failure="wait")
    work(connection)
    read = shop.batches.get(made.id)
    assert (read.outcome, read.then_job, read.dead) == ("failed", None, 1)
    shop.retry(made.jobs[1].id, payload={"n": 2})
    assert (shop.batches.get(made.id).outcome, shop.batches.get(made.id).live) == (None, 1)
    work(connection)
    assert shop.batches.get(made.id).outcome == "succeeded"
    assert count_reports(shop) == 1


@rule("M72")
def test_run_enqueues_it_at_the_first_completion_and_never_again(
    shop: rota.App, connection: Connection
) -> None:
    made = shop.batch([page(shop, n) for n in (1, -1)], then=report(shop))
    work(connection)
    assert count_reports(shop) == 1
    shop.retry(made.jobs[1].id, payload={"n": 2})
    work(connection)
    assert shop.batches.get(made.id).outcome == "succeeded"
    assert count_reports(shop) == 1


@rule("M72")
def test_a_dead_member_that_a_person_ignores_is_counted_once(
    shop: rota.App, connection: Connection
) -> None:
    jobs = [page(shop, -1), page(shop, 1), page(shop, 2).using(delay="1h")]
    made = shop.batch(jobs, then=report(shop))
    work(connection)
    shop.jobs.archive(made.jobs[0].id, why="not needed")
    work(connection)
    read = shop.batches.get(made.id)
    assert (read.succeeded, read.dead, read.cancelled, read.live) == (1, 1, 0, 1)
    assert count_reports(shop) == 0


@rule("M72")
def test_one_job_follows_by_outcome_and_after_no_members_at_once(
    shop: rota.App, connection: Connection
) -> None:
    then = {"succeeded": page(shop, 7), "failed": report(shop)}
    batches = {
        "page": shop.batch([page(shop, 1)], then=then),
        "report": shop.batch([page(shop, -1)], then=then),
        "page ": shop.batch([], then=then),
    }
    work(connection)
    for follows, made in batches.items():
        job = shop.batches.get(made.id).then_job
        assert job is not None
        assert shop.get(job).job_type == follows.strip()


@rule("M72")
def test_a_batch_waits_for_the_batches_in_it(shop: rota.App, connection: Connection) -> None:
    outer = shop.batch([page(shop, 1)], then=report(shop), on_failure="wait")
    inner = shop.batch([page(shop, -1)], parent=outer.id)

    def told() -> tuple[int, int, str | None]:
        work(connection)
        read = shop.batches.get(outer.id)
        assert read.total == 2
        return read.succeeded, read.dead, read.outcome

    assert told() == (1, 1, "failed")
    again = shop.retry(inner.jobs[0].id)
    shop.jobs.reschedule(again.id, delay="1h")
    assert told() == (1, 0, None)
    shop.retry(again.id)
    assert told() == (1, 1, "failed")
    assert count_reports(shop) == 0
    shop.retry(again.id, payload={"n": 2})
    assert told() == (2, 0, "succeeded")
    assert count_reports(shop) == 1
    with pytest.raises(rota.UsageError, match=f"batch {outer.id} has ended"):
        shop.batch([], parent=outer.id)
    with pytest.raises(rota.UsageError, match="there is no batch 99"):
        shop.batch([], parent=99)


@rule("M72")
def test_the_whole_is_cancelled_with_the_batches_in_it(
    shop: rota.App, connection: Connection
) -> None:
    outer = shop.batch([page(shop, n) for n in range(1_100)], then=report(shop))
    inner = shop.batch([page(shop, 1)], parent=outer.id)
    other = shop.enqueue(page(shop, 5))
    Hand(connection, types=["page"]).claim(1)
    result = shop.batches.cancel(outer.id, why="not needed")
    assert (len(result.done), bool(result.refused)) == (1_101, False)
    assert shop.batches.get(outer.id).cancelled == 1_099
    assert shop.batches.get(inner.id).cancelled == 1
    assert shop.get(other.id).status == "queued"
    assert {entry.why for entry in shop.jobs.log(limit=2_000)} == {"not needed"}
    with pytest.raises(rota.errors.BatchNotFound, match="no batch 99"):
        shop.batches.cancel(99)


@rule("M72", "M85")
def test_members_are_found_whatever_became_of_them_and_when(
    shop: rota.App, connection: Connection
) -> None:
    first = shop.batch([page(shop, n) for n in (1, -1, 2)])
    shop.enqueue(page(shop, 3))
    second = shop.batch([page(shop, n) for n in (4, 5)])
    over, dead, cancelled = (job.id for job in first.jobs)
    shop.cancel(cancelled)
    work(connection)
    requeued = shop.retry(dead).id
    # As if it were made by a transaction that others enqueued beside.
    connection.execute("update rota.batch_part set last_id = 100 where batch = %s", [second.id])
    connection.execute(
        "select rota.partition_ensure('job_history', (now() - interval '3 days')::date)"
    )
    connection.execute("update rota.batch set created_at = now() - interval '4 days'")
    connection.execute(
        "update rota.job_history set finished_at = now() - interval '3 days' where id = %s", [over]
    )

    def find(**filters: Any) -> list[int]:
        return [job.id for job in shop.find(**filters)]

    assert find(batch=first.id) == [requeued, cancelled, dead, over]
    assert find(batch=first.id, limit=1, before=cancelled) == [dead]
    assert find(batch=first.id, status="cancelled") == [cancelled]
    assert find(batch=first.id, since="1h", status="succeeded") == []
    assert find(batch=second.id, job_type="page") == [job.id for job in reversed(second.jobs)]


# Keys


@rule("M72", "M51")
def test_a_job_that_joins_another_by_its_key_is_no_member(
    shop: rota.App, connection: Connection
) -> None:
    shop.enqueue(page(shop, 1).using(key="a"))
    jobs = [page(shop, n).using(key=key) for n, key in enumerate("abc")]
    made = shop.batch(jobs, then=report(shop))
    assert [job.created for job in made.jobs] == [False, True, True]
    assert shop.batches.get(made.id).total == 2
    with pytest.raises(rota.UsageError, match="each of the 1 job joined another one"):
        shop.batch(jobs[:1], then=report(shop))
    work(connection)
    assert (len(shop.batches.list()), count_reports(shop)) == (1, 1)


@rule("M72", "M51")
def test_a_batch_in_a_batch_whose_call_is_repeated_counts_once(
    shop: rota.App, connection: Connection
) -> None:
    jobs = [page(shop, n).using(key=f"{n}") for n in (1, 2, 3)]

    def make_outer() -> int:
        return shop.batch(jobs[:2], then=report(shop)).id

    outer = make_outer()
    inner = shop.batch([jobs[2]], parent=outer)
    again = asyncio.run(shop.abatch([jobs[2]], parent=outer))
    assert (make_outer(), inner.id) == (outer, again.id)
    assert shop.batches.get(outer).total == 3
    work(connection)
    assert make_outer() == outer
    work(connection)
    assert shop.batches.get(outer).outcome == "succeeded"
    assert (len(shop.batches.list()), count_reports(shop)) == (2, 1)


@rule("M72")
def test_a_job_follows_a_single_one(shop: rota.App, connection: Connection) -> None:
    made = shop.enqueue(page(shop, -1).using(key="a"), then=report(shop))
    assert made.created
    again = asyncio.run(shop.aenqueue(page(shop, -1).using(key="a"), then=page(shop, 3)))
    assert (again.id, again.created) == (made.id, False)
    assert work(connection) == 2
    assert sorted(job.job_type for job in shop.find()) == ["page", "report"]


# Failures


@rule("M20", "M72")
def test_a_batch_commits_with_the_transaction_of_its_caller(
    shop: rota.App, connection: Connection
) -> None:
    with connection.transaction(force_rollback=True):
        shop.batch([page(shop, 1)], then=report(shop), connection=connection)
    assert (shop.batches.list(), shop.find()) == ([], [])
    with connection.transaction():
        made = [shop.batch([page(shop, 1)], connection=connection).id for _ in range(2)]
    assert [batch.id for batch in shop.batches.list()] == made[::-1]
    assert [batch.id for batch in shop.batches.list(before=made[1], limit=1)] == made[:1]


@rule("M20", "M72")
def test_a_batch_of_which_the_database_refuses_a_job_is_not_there(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute("alter table rota.job add constraint not_42 check (payload->>'n' <> '42')")
    good, bad = page(shop, 1), page(shop, 42)

    async def make_in_async() -> None:
        for making in (shop.abatch([good, bad]), shop.aenqueue(bad, then=report(shop))):
            with pytest.raises(psycopg.errors.CheckViolation):
                await making
        made = await shop.abatch([good, good], then=report(shop))
        assert (await shop.batches.aget(made.id)).total == 2
        await shop.aclose()

    for make in (lambda: shop.batch([good, bad]), lambda: shop.enqueue(bad, then=report(shop))):
        with pytest.raises(psycopg.errors.CheckViolation):
            make()
    asyncio.run(make_in_async())
    assert connection.execute("select count(*) from rota.batch").fetchone() == (1,)
    assert connection.execute("select count(*) from rota.job").fetchone() == (2,)


@rule("M72")
def test_what_the_database_refuses_is_said_and_tried_again(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute("alter table rota.job add constraint mine check (job_type <> 'report')")
    refused = shop.batch([page(shop, 1)], then=report(shop))
    other = shop.batch([page(shop, 1)], then=page(shop, 2))
    work(connection)
    read = shop.batches.get(refused.id)
    assert (read.outcome, read.then_job) == ("succeeded", None)
    assert read.then_error is not None
    assert "mine" in read.then_error
    found = examine(shop._database, only=["batches"])["batches"]
    assert found.level == Level.BAD
    assert re.search(rf"batch {refused.id}, for .*mine", found.what)
    assert shop.batches.get(other.id).then_job is not None
    connection.execute("alter table rota.job drop constraint mine")
    connection.execute("update rota.batch set updated_at = updated_at - interval '11 s'")
    work(connection)
    read = shop.batches.get(refused.id)
    assert (read.then_job is not None, read.then_error) == (True, None)


@rule("M72", "M30")
def test_two_workers_that_try_again_at_once_enqueue_it_once(
    shop: rota.App, database: str, connection: Connection
) -> None:
    shop.batch([page(shop, 1)], then=report(shop))
    connection.execute(
        "update rota.batch set succeeded = 1, outcome = 'succeeded', ended_at = now(), "
        "then_error = 'refused', updated_at = now() - interval '11 s'"
    )
    fold = "select rota.batches_fold(100)"
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("set lock_timeout = '5s'")
        with connection.transaction():
            connection.execute(fold)
            other.execute(fold)
        other.execute(fold)
    assert count_reports(shop) == 1


@rule("M72", "M15")
def test_a_batch_that_there_is_not_or_that_is_locked_keeps_no_count_from_its_end(
    shop: rota.App, second: Connection, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload, batch) values ('page', '{\"n\": 1}', 999)"
    )
    assert work(connection) == 1
    assert connection.execute("select from rota.batch_delta").fetchall() == []
    made = shop.batch([page(shop, 1)])
    with second.transaction():
        second.execute("select from rota.batch where id = %s for share", [made.id])
        assert work(connection) == 1
    assert connection.execute("select outcome from rota.batch").fetchall() == [(None,)]
    work(connection)
    assert connection.execute("select outcome from rota.batch").fetchall() == [("succeeded",)]


@rule("M72")
def test_a_member_that_was_deleted_by_hand_holds_up_nothing_for_ever(
    shop: rota.App, connection: Connection
) -> None:
    made = shop.batch([page(shop, n) for n in (1, 2)], then=report(shop))
    connection.execute("delete from rota.job where id = %s", [made.jobs[0].id])
    work(connection)
    hand = Hand(connection)
    assert (shop.batches.get(made.id).live, hand.run(ops.mend_batches(100))) == (1, 0)
    connection.execute("update rota.batch set updated_at = updated_at - interval '11 minutes'")
    assert hand.run(ops.mend_batches(100)) == 1
    assert shop.batches.get(made.id).cancelled == 1
    work(connection)
    assert count_reports(shop) == 1


@rule("M72")
def test_what_cannot_be_a_batch_is_refused(shop: rota.App) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"then": 1}, {"then": {"over": None}}, {"on_failure": "stop"}, {"parent": 0},
    )  # fmt: skip
    for options in wrong:
        with pytest.raises(rota.UsageError):
            shop.batch([page(shop, 1)], **options)
    with pytest.raises(rota.UsageError, match="job 0 of the list is 7"):
        shop.batch([7])  # type: ignore[list-item]
    assert shop.find() == []


@rule("M13")
def test_old_batches_are_forgotten_unless_a_person_may_requeue_a_member(
    shop: rota.App, connection: Connection
) -> None:
    over, with_dead = shop.batch([page(shop, 1)]), shop.batch([page(shop, -1)])
    work(connection)
    live = shop.batch([page(shop, 1).using(delay="1h")])
    connection.execute(
        "update rota.batch set created_at = created_at - interval '15 days', "
        "ended_at = ended_at - interval '15 days'"
    )
    [[count]] = connection.execute("select rota.rows_forget('batches', 100)").fetchall()
    assert count == 1
    assert [batch.id for batch in shop.batches.list()] == [live.id, with_dead.id]
    rows = connection.execute("select batch from rota.batch_part order by batch").fetchall()
    assert [row[0] for row in rows] == [with_dead.id, live.id]
    with pytest.raises(rota.errors.BatchNotFound):
        shop.batches.get(over.id)


@rule("M72")
def test_results_are_in_the_order_of_the_members_and_say_which_have_none(
    shop: rota.App, connection: Connection
) -> None:
    jobs = [page(shop, n) for n in (0, -1, 2, -3, -4)]
    jobs += [page(shop, n).using(delay="1h") for n in (5, 6)]
    made = shop.batch(jobs)
    [first, requeued, _, archived, _, cancelled, _] = [job.id for job in made.jobs]
    shop.cancel(cancelled, why="not needed")
    work(connection)
    again = shop.retry(requeued, payload={"n": 1}).id
    shop.jobs.archive(archived, why="not needed")
    work(connection)
    shop.retry(first, again=True)
    other = shop.batch([page(shop, 9)])
    # As if the ids of both had been reserved by turns.
    connection.execute("update rota.batch_part set last_id = last_id + 2")
    shop.enqueue(page(shop, 8))
    work(connection)
    results = shop.batches.results(made.id)
    assert [result.id for result in results] == [job.id for job in made.jobs]
    assert [(result.outcome, result.result) for result in results] == [
        ("succeeded", 0),
        ("succeeded", 1),
        ("succeeded", 2),
        ("archived", None),
        ("dead", None),
        ("cancelled", None),
        (None, None),
    ]
    assert results[1].job == again
    assert (results[4].error_type, results[4].error) == ("OSError", "no route to host")
    assert results[5].error == "not needed"
    assert shop.batches.results(made.id, limit=3) == results[:3]
    assert shop.batches.results(made.id, after=results[2].id, limit=3) == results[3:6]
    assert [result.result for result in shop.batches.results(other.id)] == [9]
    with pytest.raises(rota.errors.BatchNotFound):
        shop.batches.results(4711)
    for wrong in ({"limit": 0}, {"limit": 10_001}, {"after": 0}):
        with pytest.raises(rota.UsageError):
            shop.batches.results(made.id, **wrong)


# Results that the next job takes


@pytest.fixture
def chained(app: rota.App) -> rota.App:
    """An App whose types take what others return."""

    @app.job("square", max_attempts=1)
    async def square(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n * n

    @app.job("double")
    def double(n: int, *, plus: int = 0) -> int:
        return 2 * n + plus

    @app.job("total")
    def total(numbers: list[int], last: int) -> int:
        return sum(numbers) + last

    app.sync()
    return app


def find_results(app: rota.App, job_type: str) -> list[Any]:
    return [job.result for job in app.find(job_type=job_type)]


@rule("M72")
def test_a_chain_hands_each_result_to_the_next_job(chained: rota.App) -> None:
    first = chained.types["square"].new(3)
    second = chained.types["double"].new(rota.result_of(first), plus=1)
    third = chained.types["double"].new(n=rota.result_of(second))
    last = chained.types["total"].new(rota.results_of([third]), last=4)
    made = chained.enqueue(first, then=[second, third, last])
    assert chained.drain().succeeded == 4
    assert chained.get(made.id).result == 9
    assert sorted(find_results(chained, "double")) == [19, 38]
    assert find_results(chained, "total") == [42]


@rule("M44", "M72")
def test_a_chain_goes_on_when_a_dead_link_has_been_retried(
    chained: rota.App, connection: Connection
) -> None:
    first = chained.types["square"].new(-3)
    made = chained.enqueue(first, then=chained.types["double"].new(rota.result_of(first)))
    chained.drain()
    assert find_results(chained, "double") == []
    chained.retry(made.id, payload={"n": 4})
    chained.drain()
    assert find_results(chained, "double") == [32]


@rule("M72")
def test_members_of_a_batch_give_their_results_one_by_one_and_as_a_list(chained: rota.App) -> None:
    square, total = chained.types["square"], chained.types["total"]
    jobs = [square.new(n) for n in (1, 2, 3)]
    waiting = chained.enqueue(square.new(5).using(key="five", delay="1h"))
    jobs.append(square.new(5).using(key="five"))
    then = total.new(rota.results_of(jobs[1:]), last=rota.result_of(jobs[0]))
    made = chained.batch(jobs, then=then)
    assert not made.jobs[3].created
    chained.drain()
    read = chained.batches.get(made.id)
    assert read.then_error == (
        f"55000: argument numbers takes the result of job {waiting.id}, which has not ended"
    )
    chained.jobs.reschedule(waiting.id, delay="0s")
    chained.drain()
    with psycopg.connect(chained.url) as connection:
        connection.execute("update rota.batch set updated_at = updated_at - interval '11 s'")
    chained.drain()
    assert find_results(chained, "total") == [4 + 9 + 25 + 1]
