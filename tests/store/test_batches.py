"""Batches: how their members are counted, and what follows them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.store.work import Hand
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


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
        ended = ctx.ended_batch
        assert ended is not None
        return {"of": ended.total, "failed": ended.failed}

    app.sync()
    return app


def page(app: rota.App, n: int) -> Any:
    return app.types["page"].new(n)


def report(app: rota.App) -> Any:
    return app.types["report"].new()


def reports(app: rota.App) -> list[Any]:
    """The results of the reports that ran, in their order."""
    return [job.result for job in reversed(app.find(job_type="report"))]


@rule("M72")
def test_what_follows_is_enqueued_once_when_the_last_member_has_ended(shop: rota.App) -> None:
    made = shop.batch([page(shop, n) for n in range(30)], then=report(shop))
    assert [one.created for one in made.jobs] == [True] * 30
    before = shop.batches.get(made.id)
    assert (before.total, before.live, before.outcome, before.then_job) == (30, 30, None, None)
    assert shop.drain().succeeded == 31
    after = shop.batches.get(made.id)
    assert (after.succeeded, after.live, after.outcome) == (30, 0, "succeeded")
    assert after.then_job is not None
    assert reports(shop) == [{"of": 30, "failed": 0}]
    shop.drain()
    assert len(reports(shop)) == 1


@rule("M72")
def test_dead_cancelled_and_expired_members_have_ended(
    shop: rota.App, connection: Connection
) -> None:
    jobs = [page(shop, n) for n in (1, -1, 2, 3)]
    made = shop.batch([*jobs, page(shop, 4).using(delay="1s", expires="1m")], then=report(shop))
    shop.cancel(made.jobs[2].id)
    connection.execute(
        "update rota.job set expires_at = now() - interval '1 s' where id = %s", [made.jobs[4].id]
    )
    shop.drain()
    shop.drain()
    read = shop.batches.get(made.id)
    assert (read.succeeded, read.dead, read.cancelled, read.outcome) == (2, 2, 1, "failed")
    assert reports(shop) == [{"of": 5, "failed": 3}]


@rule("M72")
def test_skip_holds_what_follows_until_requeued_members_have_succeeded(shop: rota.App) -> None:
    made = shop.batch([page(shop, n) for n in (1, -1)], then=report(shop), on_failure="wait")
    shop.drain()
    read = shop.batches.get(made.id)
    assert (read.outcome, read.then_job, read.dead) == ("failed", None, 1)
    shop.retry(made.jobs[1].id, payload={"n": 2})
    assert (shop.batches.get(made.id).outcome, shop.batches.get(made.id).live) == (None, 1)
    shop.drain()
    assert shop.batches.get(made.id).outcome == "succeeded"
    assert reports(shop) == [{"of": 2, "failed": 0}]


@rule("M72")
def test_run_enqueues_it_at_the_first_completion_and_never_again(shop: rota.App) -> None:
    made = shop.batch([page(shop, n) for n in (1, -1)], then=report(shop))
    shop.drain()
    shop.retry(made.jobs[1].id, payload={"n": 2})
    shop.drain()
    assert shop.batches.get(made.id).outcome == "succeeded"
    assert reports(shop) == [{"of": 2, "failed": 1}]


@rule("M72")
def test_a_dead_member_that_a_person_ignores_is_counted_once(shop: rota.App) -> None:
    jobs = [page(shop, -1), page(shop, 1), page(shop, 2).using(delay="1h")]
    made = shop.batch(jobs, then=report(shop))
    shop.drain()
    shop.jobs.archive(made.jobs[0].id, why="not needed")
    shop.drain()
    read = shop.batches.get(made.id)
    assert (read.succeeded, read.dead, read.cancelled, read.live) == (1, 1, 0, 1)
    assert reports(shop) == []


@rule("M72")
def test_a_discarded_member_has_ended(shop: rota.App) -> None:
    made = shop.batch([page(shop, 1).using(delay="1h")], then=report(shop))
    shop.jobs.discard(made.jobs[0].id)
    shop.drain()
    assert shop.batches.get(made.id).dead == 1
    assert reports(shop) == [{"of": 1, "failed": 1}]


@rule("M72")
@pytest.mark.parametrize(("n", "follows"), [(1, "page"), (-1, "report")])
def test_one_job_follows_by_outcome(shop: rota.App, n: int, follows: str) -> None:
    then = {"succeeded": page(shop, 7), "failed": report(shop)}
    made = shop.batch([page(shop, n)], then=then)
    shop.drain()
    job = shop.batches.get(made.id).then_job
    assert job is not None
    [found] = [shop.jobs.timeline(job).job]
    assert (found.job_type, found.status) == (follows, "succeeded")


@rule("M72")
def test_a_batch_without_members_ends_at_once(shop: rota.App) -> None:
    made = shop.batch([], then=report(shop))
    shop.drain()
    assert shop.batches.get(made.id).outcome == "succeeded"
    assert reports(shop) == [{"of": 0, "failed": 0}]


@rule("M72")
def test_a_batch_waits_for_the_batches_in_it(shop: rota.App) -> None:
    outer = shop.batch([page(shop, 1)], then=report(shop), on_failure="wait")
    inner = shop.batch([page(shop, -2)], parent=outer.id)
    assert shop.batches.get(outer.id).total == 2
    shop.drain()
    read = shop.batches.get(outer.id)
    assert (read.succeeded, read.dead, read.then_job) == (1, 1, None)
    shop.retry(inner.jobs[0].id, payload={"n": 2})
    assert shop.drain().succeeded == 2
    assert shop.batches.get(outer.id).outcome == "succeeded"
    assert len(reports(shop)) == 1
    with pytest.raises(rota.UsageError, match=f"batch {outer.id} has ended"):
        shop.batch([], parent=outer.id)
    with pytest.raises(rota.UsageError, match="there is no batch 99"):
        shop.batch([], parent=99)


@rule("M72")
def test_an_outer_batch_is_told_each_time_that_an_inner_one_ends_in_another_way(
    shop: rota.App,
) -> None:
    outer = shop.batch([page(shop, 1)], then=report(shop), on_failure="wait")
    inner = shop.batch([page(shop, -1)], parent=outer.id)
    shop.drain()

    def told() -> tuple[int, int, str | None]:
        shop.drain()
        read = shop.batches.get(outer.id)
        return read.succeeded, read.dead, read.outcome

    assert told() == (1, 1, "failed")
    again = shop.retry(inner.jobs[0].id)
    shop.jobs.reschedule(again.id, delay="1h")
    assert told() == (1, 0, None)
    shop.retry(again.id)
    assert told() == (1, 1, "failed")
    shop.retry(again.id, payload={"n": 2})
    assert told() == (2, 0, "succeeded")


@rule("M72")
def test_the_whole_is_cancelled_with_the_batches_in_it(
    shop: rota.App, connection: Connection
) -> None:
    outer = shop.batch([page(shop, n) for n in range(2500)], then=report(shop))
    inner = shop.batch([page(shop, 1)], parent=outer.id)
    other = shop.enqueue(page(shop, 5))
    hand = Hand(connection, types=["page"])
    hand.claim(1)
    result = shop.batches.cancel(outer.id, why="not needed")
    assert len(result.done) == 2501
    assert not result.refused
    assert shop.batches.get(outer.id).cancelled == 2499
    assert shop.batches.get(inner.id).cancelled == 1
    [kept] = [shop.jobs.timeline(other.id).job]
    assert kept.status == "queued"
    with pytest.raises(rota.errors.BatchNotFound, match="no batch 99"):
        shop.batches.cancel(99)


@rule("M72", "M85")
def test_members_are_found_whatever_became_of_them_and_when(
    shop: rota.App, connection: Connection
) -> None:
    first = shop.batch([page(shop, n) for n in (1, -1, 2)])
    shop.enqueue(page(shop, 3))
    second = shop.batch([page(shop, n) for n in (4, 5)])
    over, dead, cancelled = (one.id for one in first.jobs)
    shop.cancel(cancelled)
    shop.drain()
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
    assert find(batch=first.id, limit=2) == [requeued, cancelled]
    assert find(batch=first.id, before=dead) == [over]
    assert find(batch=first.id, status="cancelled") == [cancelled]
    assert find(batch=first.id, since="1h", status="succeeded") == []
    assert find(batch=second.id, job_type="page") == [one.id for one in reversed(second.jobs)]
    assert find(batch=999) == []
    with pytest.raises(rota.UsageError):
        shop.find(batch=0)


@rule("M72", "M51")
def test_a_job_that_joins_another_by_its_key_is_no_member(shop: rota.App) -> None:
    shop.enqueue(page(shop, 1).using(key="a"))
    jobs = [page(shop, n).using(key=key) for n, key in enumerate("abc")]
    made = shop.batch(jobs, then=report(shop))
    assert [one.created for one in made.jobs] == [False, True, True]
    assert shop.batches.get(made.id).total == 2
    shop.drain()
    assert reports(shop) == [{"of": 2, "failed": 0}]


@rule("M72", "M51")
def test_a_call_that_is_repeated_returns_the_same_batch(shop: rota.App) -> None:
    def make() -> rota.records.NewBatch:
        jobs = [page(shop, n).using(key=f"{n}") for n in (1, 2)]
        return shop.batch(jobs, then=report(shop))

    first, second = make(), make()
    assert first.id == second.id
    shop.drain()
    assert make().id == first.id
    shop.drain()
    assert len(shop.batches.list()) == 1
    assert reports(shop) == [{"of": 2, "failed": 0}]


@rule("M72", "M51")
def test_a_batch_in_a_batch_whose_call_is_repeated_counts_once(shop: rota.App) -> None:
    outer = shop.batch([page(shop, 1)], then=report(shop))

    def make() -> rota.records.NewBatch:
        return shop.batch([page(shop, 2).using(key="a")], parent=outer.id)

    assert make().id == make().id
    assert shop.batches.get(outer.id).total == 2
    shop.drain()
    assert reports(shop) == [{"of": 2, "failed": 0}]


@rule("M72", "M51")
def test_a_batch_whose_jobs_all_joined_others_is_refused(shop: rota.App) -> None:
    job = page(shop, 1).using(key="a")
    shop.enqueue(job)
    with pytest.raises(rota.UsageError, match="each of the 1 job joined another one"):
        shop.batch([job], then=report(shop))
    assert shop.batches.list() == []


@rule("M72")
@pytest.mark.parametrize("n", [1, -1])
def test_a_job_follows_a_single_one(shop: rota.App, n: int) -> None:
    made = shop.enqueue(page(shop, n).using(key="a"), then=report(shop))
    assert made.created
    again = asyncio.run(shop.aenqueue(page(shop, n).using(key="a"), then=page(shop, 3)))
    assert (again.id, again.created) == (made.id, False)
    shop.drain()
    assert reports(shop) == [{"of": 1, "failed": int(n < 0)}]
    assert {job.job_type for job in shop.find()} == {"page", "report"}
    assert len(shop.find(job_type="page")) == 1


@rule("M20", "M72")
def test_a_batch_commits_with_the_transaction_of_its_caller(
    shop: rota.App, connection: Connection
) -> None:
    with connection.transaction(force_rollback=True):
        shop.batch([page(shop, 1)], then=report(shop), connection=connection)
    assert shop.batches.list() == []
    assert shop.find() == []
    with connection.transaction():
        made = asyncio.run(_make(shop))
        shop.batch([page(shop, 1)], connection=connection)
    assert [one.id for one in shop.batches.list()] == [made.id + 1, made.id]
    assert [one.id for one in shop.batches.list(before=made.id + 1, limit=1)] == [made.id]


async def _make(shop: rota.App) -> Any:
    made = await shop.abatch([page(shop, 1)])
    assert (await shop.batches.aget(made.id)).total == 1
    return made


@rule("M72")
def test_what_the_database_refuses_is_said_and_tried_again(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise exception 'no reports today'; end $$"
    )
    connection.execute(
        "create trigger refuse before insert on rota.job for each row "
        "when (new.job_type = 'report') execute function refuse()"
    )
    refused = shop.batch([page(shop, 1)], then=report(shop))
    other = shop.batch([page(shop, 1)], then=page(shop, 2))
    shop.drain()
    read = shop.batches.get(refused.id)
    assert (read.outcome, read.then_job) == ("succeeded", None)
    assert read.then_error is not None
    assert "no reports today" in read.then_error
    assert shop.batches.get(other.id).then_job is not None
    connection.execute("drop trigger refuse on rota.job")
    connection.execute("update rota.batch set updated_at = updated_at - interval '11 s'")
    shop.drain()
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
    fold = "select is_left from rota.batches_fold(100)"
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("set lock_timeout = '5s'")
        with connection.transaction():
            connection.execute(fold)
            other.execute(fold)
        other.execute(fold)
    assert len(shop.find(job_type="report")) == 1


@rule("M72", "M15")
def test_a_batch_that_there_is_not_or_that_is_locked_keeps_no_drain_from_its_end(
    shop: rota.App, database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload, batch) values ('page', '{\"n\": 1}', 999)"
    )
    assert shop.drain().succeeded == 1
    assert connection.execute("select from rota.batch_delta").fetchall() == []
    made = shop.batch([page(shop, 1)])
    with psycopg.connect(database) as other:
        other.execute("select from rota.batch where id = %s for share", [made.id])
        assert shop.drain().succeeded == 1
    shop.drain()
    assert shop.batches.get(made.id).outcome == "succeeded"


@rule("M72")
def test_a_member_that_was_deleted_by_hand_holds_up_nothing_for_ever(
    shop: rota.App, connection: Connection
) -> None:
    made = shop.batch([page(shop, n) for n in (1, 2)], then=report(shop))
    connection.execute("delete from rota.job where id = %s", [made.jobs[0].id])
    shop.drain()
    assert shop.batches.get(made.id).live == 1
    connection.execute("update rota.batch set updated_at = updated_at - interval '11 minutes'")
    shop.drain()
    assert shop.batches.get(made.id).cancelled == 1
    shop.drain()  # what follows may be enqueued after the last claim of that drain
    assert reports(shop) == [{"of": 2, "failed": 1}]


@rule("M72")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"then": 1}, "then is 1; make it with"),
        ({"then": {"over": None}}, "the outcomes are ended, succeeded, failed, not 'over'"),
        ({"on_failure": "stop"}, "on_failure must be 'continue' or 'wait', not 'stop'"),
        ({"parent": 0}, "0"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(
    shop: rota.App, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(rota.UsageError, match=says):
        shop.batch([page(shop, 1)], **options)
    with pytest.raises(rota.UsageError, match="job 0 of the list is 7"):
        shop.batch([7])  # type: ignore[list-item]
    assert shop.find() == []


@rule("M13")
def test_old_batches_are_forgotten_unless_a_person_may_requeue_a_member(
    shop: rota.App, connection: Connection
) -> None:
    over, with_dead = shop.batch([page(shop, 1)]), shop.batch([page(shop, -1)])
    shop.drain()
    live = shop.batch([page(shop, 1).using(delay="1h")])
    connection.execute(
        "update rota.batch set created_at = created_at - interval '15 days', "
        "ended_at = ended_at - interval '15 days'"
    )
    [[count]] = connection.execute("select rota.rows_forget('batches', 100)").fetchall()
    assert count == 1
    assert [one.id for one in shop.batches.list()] == [live.id, with_dead.id]
    rows = connection.execute("select batch from rota.batch_part order by batch").fetchall()
    assert [row[0] for row in rows] == [with_dead.id, live.id]
    with pytest.raises(rota.errors.BatchNotFound):
        shop.batches.get(over.id)


@rule("M72")
async def test_results_are_in_the_order_of_the_members_and_say_which_have_none(
    shop: rota.App,
) -> None:
    jobs = [page(shop, n) for n in (0, -1, 2, -3, -4)]
    jobs += [page(shop, n).using(delay="1h") for n in (5, 6)]
    made = await shop.abatch(jobs)
    [_, requeued, _, archived, _, cancelled, _] = [one.id for one in made.jobs]
    await shop.acancel(cancelled, why="not needed")
    await shop.adrain()
    again = (await shop.aretry(requeued, payload={"n": 1})).id
    await shop.jobs.aarchive(archived, why="not needed")
    await shop.adrain()
    await shop.aretry(made.jobs[0].id, again=True)
    results = await shop.batches.aresults(made.id)
    assert [one.id for one in results] == [one.id for one in made.jobs]
    assert [(one.outcome, one.result) for one in results] == [
        ("succeeded", 0),
        ("succeeded", 1),
        ("succeeded", 2),
        ("archived", None),
        ("dead", None),
        ("cancelled", None),
        (None, None),
    ]
    assert results[1].job == again
    assert (results[4].error_type, results[4].error) == ("ValueError", "-4")
    assert results[5].error == "not needed"
    assert await shop.batches.aresults(made.id, limit=3) == results[:3]
    assert await shop.batches.aresults(made.id, after=results[2].id, limit=3) == results[3:6]
    await shop.aclose()


@rule("M72")
def test_results_are_of_one_batch_that_there_is(shop: rota.App, connection: Connection) -> None:
    made, _ = shop.batch([page(shop, 1)]), shop.batch([page(shop, 2)])
    # As if the ids of both had been reserved by turns.
    connection.execute("update rota.batch_part set last_id = last_id + 2")
    shop.enqueue(page(shop, 3))
    shop.drain()
    assert [one.result for one in shop.batches.results(made.id)] == [1]
    with pytest.raises(rota.errors.BatchNotFound):
        shop.batches.results(4711)
    for wrong in ({"limit": 0}, {"limit": 10_001}, {"after": 0}):
        with pytest.raises(rota.UsageError):
            shop.batches.results(made.id, **wrong)
