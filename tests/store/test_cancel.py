"""Cancelling jobs: what waits is over at once, what runs ends by its worker, and never twice. And
what handlers say of how far they have come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.model.job import Action
from rota.model.settle import Transition
from rota.store import ops
from rota.store.ops import Answer
from tests.store.work import (
    FAIL,
    GIVE_UP,
    HAND_BACK,
    PAYLOAD_MISMATCH,
    SNOOZE,
    SUCCEED,
    Hand,
    act,
    expire,
    insert,
    waits,
)
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]
T = TypeVar("T")


def cancel(
    connection: Connection, *ids: int, why: str | None = "not wanted any more"
) -> list[tuple[str, str | None]]:
    """Cancel jobs; answer and status of each."""
    return [
        (one.answer, one.status) for one in Hand(connection).run(act(Action.CANCEL, *ids, why=why))
    ]


def one(connection: Connection, query: str) -> TupleRow:
    """The one row of a query."""
    [row] = connection.execute(query.encode()).fetchall()
    return row


def after_it_waited(
    connection: Connection, own: Connection, doing: Callable[[], T], ending: Callable[[], object]
) -> T:
    """Act on `own`, which waits for a lock; release the lock; return the result."""
    with ThreadPoolExecutor(1) as pool:
        done: Future[T] = pool.submit(doing)
        eventually(waits(connection, own), what="it waits for the other's lock")
        ending()
        return done.result(30)


@rule("M51", "M87")
@pytest.mark.parametrize("status", ["queued", "failed", "waiting"])
def test_a_job_that_waits_is_over_at_once_and_its_key_is_free(
    connection: Connection, status: str
) -> None:
    [job] = insert(
        connection,
        status=status,
        idempotency_key="k",
        payload='{"a": [1, "\\u2603", null]}',
        meta='{"by": "me"}',
    )
    before = one(connection, "select to_jsonb(j) from rota.job j")[0]
    assert cancel(connection, job) == [("cancelled", "cancelled")]
    assert one(connection, "select count(*) from rota.job") == (0,)
    ended = one(connection, "select to_jsonb(h) from rota.job_history h")[0]
    now = ended["finished_at"]
    assert ended == before | {
        "status": "cancelled", "finished_at": now, "updated_at": now, "cancel_requested_at": now,
        "cancel_reason": "not wanted any more",
        "last_error": "not wanted any more", "result": None, "release": None, "resolution": None,
    }  # fmt: skip
    assert insert(connection, idempotency_key="k") != []


@rule("M43", "M87")
def test_the_reason_takes_the_place_of_the_last_failure_whose_attempt_stays(
    connection: Connection,
) -> None:
    insert(connection)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.settle((job, FAIL))
    cancel(connection, job.id)
    assert one(connection,
        "select last_error, error_type, verdict, verdict_rule, failed_at is null from "
        "rota.jobs") == (
        "not wanted any more", None, None, None, False,
    )  # fmt: skip
    assert one(connection, "select outcome, error_type from rota.attempt") == ("failed", "OSError")


@rule("M43")
def test_without_a_reason_the_last_failure_stays(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.settle((job, FAIL))
    cancel(connection, job.id, why=None)
    assert one(connection, "select last_error, error_type, cancel_reason from rota.jobs") == (
        "no route to host",
        "OSError",
        None,
    )


@rule("M87")
def test_of_a_job_that_runs_the_request_is_kept_and_the_first_reason_stays(
    connection: Connection,
) -> None:
    insert(connection)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    assert cancel(connection, job.id, why="first") == [("requested", "running")]
    first = one(
        connection,
        "select cancel_requested_at, cancel_reason, status, claims, locked_by from rota.job",
    )
    assert first[1:] == ("first", "running", 1, "hand")
    assert cancel(connection, job.id, why="second") == [("requested", "running")]
    assert (
        one(
            connection,
            "select cancel_requested_at, cancel_reason, status, claims, locked_by from rota.job",
        )
        == first
    )


@rule("M45", "M87")
def test_a_long_reason_is_cut_from_any_caller(connection: Connection) -> None:
    [job] = insert(connection)
    cancel(connection, job, why="x" * 100_000)
    assert one(connection, "select length(cancel_reason), length(last_error) from rota.jobs") == (
        500,
        500,
    )


@rule("M44", "M87")
def test_dead_jobs_and_those_that_are_over_are_refused_and_left_as_they_are(
    connection: Connection,
) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    dead, succeeded, cancelled = hand.claim().jobs
    hand.settle((dead, GIVE_UP), (succeeded, SUCCEED))
    cancel(connection, cancelled.id)
    hand.settle((cancelled, FAIL))
    before = connection.execute("select * from rota.jobs order by id").fetchall()
    answers = cancel(connection, dead.id, succeeded.id, cancelled.id, 4711)
    assert answers == [
        ("refused", "dead"),
        ("refused", "succeeded"),
        ("refused", "cancelled"),
        ("not found", None),
    ]
    assert connection.execute("select * from rota.jobs order by id").fetchall() == before


@rule("M87")
def test_each_of_many_is_answered_in_the_order_of_the_ids(connection: Connection) -> None:
    ids = insert(connection, 2_500)
    running = {job.id for job in Hand(connection).claim(500).jobs}
    shuffled = random.Random(1).sample([*ids, *ids[:10], 9_999], len(ids) + 11)
    answers = Hand(connection).run(act(Action.CANCEL, *shuffled))
    assert answers == [
        Answer(id_, "requested", "running")
        if id_ in running
        else Answer(id_, "cancelled", "cancelled")
        for id_ in ids
    ] + [Answer(9_999, "not found", None)]


@rule("M11", "M51", "M87")
@pytest.mark.parametrize(
    ("transition", "outcome"),
    [(FAIL, "cancelled"), (SNOOZE, None), (HAND_BACK, None)],
    ids=["failed", "snoozed", "handed back"],
)
def test_a_cancelled_job_never_runs_again(
    connection: Connection, transition: Transition, outcome: str | None
) -> None:
    insert(connection, idempotency_key="k")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    cancel(connection, job.id)
    assert hand.settle((job, transition)) == {
        job.id: ops.Written("cancelled", None, "not wanted any more")
    }
    assert one(connection, "select count(*) from rota.job") == (0,)
    assert one(connection,
        "select status, cancel_reason, last_error, claims from rota.job_history") == (
        "cancelled", "not wanted any more", "not wanted any more", 2,
    )  # fmt: skip
    assert connection.execute("select outcome, next_run_at from rota.attempt").fetchall() == (
        [(outcome, None)] if outcome else []
    )
    assert one(connection, "select count(*) from rota.idempotency") == (0,)


@rule("M12", "M87")
def test_a_payload_mismatch_with_a_request_to_cancel_waits_for_no_other_release(
    connection: Connection,
) -> None:
    insert(connection)
    Hand(connection, "other", release="2").send_heartbeat()
    hand = Hand(connection)
    [job] = hand.claim().jobs
    cancel(connection, job.id)
    assert hand.settle((job, PAYLOAD_MISMATCH))[job.id].status == "cancelled"


@rule("M32", "M87")
@pytest.mark.parametrize("transition", [FAIL, HAND_BACK], ids=["fails", "hands back"])
def test_a_late_worker_does_not_end_a_job_with_a_request_to_cancel_that_another_runs(
    connection: Connection, transition: Transition
) -> None:
    insert(connection)
    late, hand = Hand(connection, "late"), Hand(connection)
    [lost] = late.claim().jobs
    expire(connection)
    late.reap()
    [job] = hand.claim().jobs
    cancel(connection, job.id)
    assert late.settle((lost, transition)) == {}
    assert one(connection, "select status, locked_by, claims from rota.jobs") == (
        "running",
        "hand",
        job.claims,
    )


@rule("M87")
def test_others_of_the_same_batch_go_their_own_ways(connection: Connection) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    first, second, third = hand.claim().jobs
    cancel(connection, second.id)
    written = hand.settle((first, FAIL), (second, FAIL), (third, HAND_BACK))
    assert [written[job.id].status for job in (first, second, third)] == [
        "failed",
        "cancelled",
        "queued",
    ]
    assert connection.execute("select id, status from rota.jobs order by id").fetchall() == [
        (first.id, "failed"), (second.id, "cancelled"), (third.id, "queued"),
    ]  # fmt: skip


@rule("M42", "M44")
def test_a_fatal_failure_is_dead_also_with_a_request_to_cancel(connection: Connection) -> None:
    insert(connection, idempotency_key="k")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    cancel(connection, job.id)
    assert hand.settle((job, GIVE_UP))[job.id].status == "dead"
    assert cancel(connection, job.id) == [("refused", "dead")]
    assert one(connection, "select status, cancel_reason, last_error from rota.job") == (
        "dead",
        "not wanted any more",
        "no route to host",
    )
    assert one(connection, "select count(*) from rota.idempotency") == (1,)


@rule("M33", "M51", "M87")
@pytest.mark.parametrize("losses", [None, 1], ids=["uncharged", "charged"])
def test_a_lost_job_with_a_request_to_cancel_is_over(
    connection: Connection, losses: int | None
) -> None:
    insert(connection, idempotency_key="k", losses=losses)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    if losses:
        hand.run(ops.start([(job.id, job.claims, False)]))
    cancel(connection, job.id)
    expire(connection)
    [lost] = hand.reap()
    assert (lost.job, lost.status, lost.reason) == (job.id, "cancelled", "not wanted any more")
    assert one(connection, "select status, cancel_reason from rota.jobs") == (
        "cancelled",
        "not wanted any more",
    )
    assert one(connection, "select outcome, error_type, next_run_at from rota.attempt") == (
        "cancelled",
        "LeaseExpired",
        None,
    )
    assert one(connection, "select count(*) from rota.idempotency") == (0,)
    assert one(connection, "select count(*) from rota.queue where look_back_to is not null") == (0,)


@rule("M44")
def test_a_lost_job_that_is_dead_stays_for_a_person(connection: Connection) -> None:
    insert(connection, losses=1, max_attempts=1)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.run(ops.start([(job.id, job.claims, False)]))
    cancel(connection, job.id)
    expire(connection)
    assert [lost.status for lost in hand.reap()] == ["dead"]
    assert one(connection, "select status from rota.jobs") == ("dead",)


@rule("M13", "M87")
def test_a_success_stays_a_success_and_keeps_the_request_to_cancel(
    connection: Connection,
) -> None:
    insert(connection, idempotency_key="k")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.run(ops.progress([(job.id, job.claims, '{"done": 1, "total": 2, "note": null}')]))
    cancel(connection, job.id)
    assert hand.settle((job, SUCCEED))[job.id].status == "succeeded"
    assert one(connection,
        "select status, cancel_reason, cancel_requested_at is not null, last_error, progress ->> "
        "'done' from rota.jobs") == (
        "succeeded", "not wanted any more", True, None, "1",
    )  # fmt: skip
    assert one(connection, "select count(*) from rota.idempotency") == (1,)


# Races, on two connections


@rule("M32", "M87")
def test_a_finish_that_was_first_wins_over_the_wish_to_cancel(
    database: str, connection: Connection, second: Connection
) -> None:
    insert(connection)
    [job] = Hand(connection).claim().jobs
    with psycopg.connect(database) as finisher:
        Hand(finisher).settle((job, SUCCEED))
        assert after_it_waited(
            connection, second, lambda: cancel(second, job.id), finisher.commit
        ) == [("refused", "succeeded")]
    assert connection.execute("select status, cancel_requested_at from rota.jobs").fetchall() == [
        ("succeeded", None)
    ]


@rule("M32", "M87")
@pytest.mark.parametrize(
    ("transition", "status"), [(SUCCEED, "succeeded"), (FAIL, "cancelled"), (GIVE_UP, "dead")]
)
def test_an_end_that_waited_for_the_wish_to_cancel_heeds_it(
    database: str, connection: Connection, second: Connection, transition: Transition, status: str
) -> None:
    insert(connection)
    [job] = Hand(connection).claim().jobs
    with psycopg.connect(database) as canceller:
        assert cancel(canceller, job.id) == [("requested", "running")]
        written = after_it_waited(
            connection, second, lambda: Hand(second).settle((job, transition)), canceller.commit
        )
    assert written[job.id].status == status
    assert connection.execute("select status, cancel_reason from rota.jobs").fetchall() == [
        (status, "not wanted any more")
    ]


@rule("M30", "M87")
def test_a_claim_and_the_wish_to_cancel_never_both_have_the_job(
    database: str, connection: Connection, second: Connection
) -> None:
    insert(connection, 2)
    with psycopg.connect(database) as claimer:
        [job] = Hand(claimer).claim(1).jobs
        assert after_it_waited(
            connection, second, lambda: cancel(second, job.id), claimer.commit
        ) == [("requested", "running")]
    with psycopg.connect(database) as canceller:
        assert cancel(canceller, job.id + 1) == [("cancelled", "cancelled")]
        assert Hand(connection).claim().jobs == []
    assert connection.execute("select status from rota.jobs order by id").fetchall() == [
        ("running",),
        ("cancelled",),
    ]


@rule("M20", "M87")
def test_a_cancel_that_is_rolled_back_never_was(database: str, connection: Connection) -> None:
    waiting, running = insert(connection, 2)
    Hand(connection).claim(1)
    before = connection.execute("select * from rota.jobs order by id").fetchall()
    with psycopg.connect(database) as canceller:
        cancel(canceller, waiting, running)
        canceller.rollback()
    assert connection.execute("select * from rota.jobs order by id").fetchall() == before


@rule("M32", "M33")
def test_an_open_cancel_costs_no_worker_a_lease(database: str, connection: Connection) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    connection.execute("set lock_timeout = '1 s'")
    said = [(job.id, job.claims, '{"done": 1}') for job in jobs]
    with psycopg.connect(database) as canceller:
        cancel(canceller, jobs[1].id)
        assert hand.renew(*jobs) == {job.id for job in jobs}
        assert hand.run(ops.progress(said)) == {
            jobs[0].id: True,
            jobs[1].id: False,
            jobs[2].id: True,
        }
        canceller.commit()
    assert hand.run(ops.renew([(job.id, job.claims) for job in jobs], hand.who)).cancels == {
        jobs[1].id: "not wanted any more"
    }


@rule("M30", "M32", "M87")
def test_cancels_against_workers_and_each_other_never_deadlock_and_end_each_job_once(
    database: str, connection: Connection
) -> None:
    ids = insert(connection, 600)
    connection.execute("update rota.job set idempotency_key = id::text")
    connection.execute(
        "insert into rota.idempotency (job_type, key, job) select job_type, idempotency_key, id "
        "from rota.job"
    )

    def cancel_some(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(database, autocommit=True) as own:
            for _ in range(30):
                cancel(own, *chance.sample(ids, 30))

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(database, autocommit=True) as own:
            hand = Hand(own, f"hand {seed}")
            while jobs := hand.claim(40).jobs:
                hand.renew(*jobs)
                hand.run(
                    ops.progress([(job.id, job.claims, '{"done": 1}') for job in reversed(jobs)])
                )
                hand.settle(
                    *(
                        (job, chance.choice([SUCCEED, FAIL, SNOOZE]))
                        for job in chance.sample(jobs, len(jobs))
                    )
                )

    with ThreadPoolExecutor(4) as pool:
        for done in [
            pool.submit(cancel_some, 1),
            pool.submit(cancel_some, 2),
            pool.submit(work, 3),
            pool.submit(work, 4),
        ]:
            done.result(300)
    assert [
        row[0] for row in connection.execute("select id from rota.jobs order by id").fetchall()
    ] == ids
    found = connection.execute(
        "select status, cancel_requested_at is not null, count(*) from rota.jobs group by 1, 2"
    ).fetchall()
    counts = {(status, asked): count for status, asked, count in found}
    assert counts[("cancelled", True)] > 0 and counts[("succeeded", False)] > 0
    assert set(counts) <= {
        ("cancelled", True),
        ("succeeded", False),
        ("succeeded", True),
        ("failed", False),
        ("queued", False),
    }
    assert one(
        connection,
        "select count(*) from rota.idempotency where job in (select id from rota.jobs where status "
        "= 'cancelled')",
    ) == (0,)


# Progress


@rule("M32", "M72")
def test_progress_is_seen_while_the_job_runs(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    assert hand.run(
        ops.progress([(job.id, job.claims, '{"done": 40, "total": 100, "note": "pages"}')])
    ) == {job.id: True}
    [found] = hand.run(ops.find(ops.Filter(ids=[job.id])))
    assert found.progress is not None and found.status == "running"
    assert (found.progress.done, found.progress.total, found.progress.note) == (40, 100, "pages")
    assert one(
        connection,
        "select abs(extract(epoch from rota.clock() - (progress ->> 'at')::timestamptz)) < 60 from "
        "rota.jobs",
    ) == (True,)


@rule("M32")
def test_a_worker_that_lost_the_job_writes_no_progress(connection: Connection) -> None:
    insert(connection, 2)
    late, hand = Hand(connection, "late"), Hand(connection)
    lost, kept = late.claim().jobs
    connection.execute(
        "update rota.job set locked_until = rota.clock() - interval '1 s' where id = %s", [lost.id]
    )
    hand.reap()
    connection.execute("update rota.job set run_at = rota.clock() where id = %s", [lost.id])
    assert late.run(
        ops.progress([(lost.id, lost.claims, '{"done": 1}'), (kept.id, kept.claims, '{"done": 2}')])
    ) == {kept.id: True}
    assert [job.id for job in hand.claim().jobs] == [lost.id]
    assert late.run(ops.progress([(lost.id, lost.claims, '{"done": 1}')])) == {}
    assert connection.execute(
        "select progress ->> 'done' from rota.job order by id"
    ).fetchall() == [(None,), ("2",)]


@rule("M32", "M72")
def test_a_row_that_another_has_locked_keeps_no_other_progress_from_being_written(
    connection: Connection, database: str
) -> None:
    insert(connection, 2)
    hand = Hand(connection)
    locked, free = hand.claim().jobs
    connection.execute("set lock_timeout = '5 s'")
    with psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [locked.id])
        said = hand.run(
            ops.progress([(job.id, job.claims, '{"done": 1}') for job in (locked, free)])
        )
        assert said == {locked.id: False, free.id: True}
    assert connection.execute(
        "select progress ->> 'done' from rota.job order by id"
    ).fetchall() == [(None,), ("1",)]


# Python


@rule("M87")
def test_an_app_calls_jobs_off_and_says_where_they_stand(
    app: rota.App, connection: Connection
) -> None:
    running, queued = insert(connection, 2)
    Hand(connection).claim(1)
    assert app.cancel(running, why="a\nline \x00 with password=hunter2") is rota.Status.RUNNING
    assert app.get(running).cancel_reason == "a line with password=***"
    assert app.cancel(queued) is rota.Status.CANCELLED
    assert (app.get(queued).status, app.get(queued).last_error) == ("cancelled", None)
    with pytest.raises(
        rota.WrongStatus,
        match=(
            f"job {queued} is cancelled, not queued, waiting, running or failed; nothing was "
            f"changed"
        ),
    ) as refused:
        app.cancel(queued)
    assert (refused.value.job, refused.value.status) == (queued, "cancelled")
    with pytest.raises(rota.JobNotFound):
        app.cancel(4711)
    for id_, why in ((0, None), (queued, 7), (queued, b"why")):
        with pytest.raises(rota.UsageError):
            app.cancel(id_, why=why)  # type: ignore[arg-type]


@rule("M44", "M87")
def test_a_dead_job_is_refused_with_what_to_do(app: rota.App, connection: Connection) -> None:
    [job] = insert(connection, status="dead")
    with pytest.raises(rota.WrongStatus, match=r"is dead.*retry or archive"):
        app.cancel(job)


@rule("M20", "M87")
async def test_a_cancel_joins_the_caller_s_transaction(
    app: rota.App, database: str, connection: Connection
) -> None:
    first, other = insert(connection, 2)
    with psycopg.connect(database) as own:
        assert await asyncio.to_thread(app.cancel, first, connection=own) is rota.Status.CANCELLED
        assert (await app.aget(first)).status == "queued"
        own.rollback()
    assert (await app.aget(first)).status == "queued"
    async with await psycopg.AsyncConnection.connect(database) as own_async:
        assert await app.acancel(other, why="w", connection=own_async) is rota.Status.CANCELLED
        await own_async.commit()
    assert (await app.aget(other)).cancel_reason == "w"
    await app.aclose()


@rule("M13", "M87")
def test_the_day_s_partition_is_made_if_it_is_missing(
    database: str, connection: Connection
) -> None:
    [job] = insert(connection)
    connection.execute(
        """do $$ declare p regclass;
           begin
             for p in
               select inhrelid from pg_inherits where inhparent = 'rota.job_history'::regclass
             loop
               execute 'drop table ' || p;
             end loop;
           end $$"""
    )
    with psycopg.connect(database) as own:
        assert cancel(own, job) == [("cancelled", "cancelled")]
