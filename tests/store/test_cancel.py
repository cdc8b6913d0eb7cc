"""Cancelling jobs: what waits is over at once, what runs ends by its worker, and never twice. And
what handlers say of how far they have come."""

from __future__ import annotations

import random

import psycopg
import pytest

from rota.model.job import Action
from rota.model.settle import Transition
from rota.store import ops
from rota.store.errors import RowLocked
from rota.store.ops import Answer
from tests.store.work import (
    FAIL,
    GIVE_UP,
    HAND_BACK,
    PAYLOAD_MISMATCH,
    SNOOZE,
    SUCCEED,
    Connection,
    Hand,
    act,
    after_it_waited,
    drop_days,
    expire,
    fetch,
    insert,
)
from tests.support.rules import rule


def cancel(
    connection: Connection, *ids: int, why: str | None = "not wanted any more"
) -> list[tuple[str, str | None]]:
    return [
        (answer.answer, answer.status)
        for answer in Hand(connection).run(act(Action.CANCEL, *ids, why=why))
    ]


@rule("M51", "M87")
@pytest.mark.parametrize("status", ["queued", "failed", "waiting"])
def test_a_job_that_waits_is_over_at_once_and_its_key_is_free(
    shared: Connection, status: str
) -> None:
    [job] = insert(
        shared,
        status=status,
        idempotency_key="k",
        payload='{"a": [1, "\\u2603", null]}',
        meta='{"by": "me"}',
    )
    before = fetch(shared, "select to_jsonb(j) from rota.job j")[0]
    assert cancel(shared, job) == [("cancelled", "cancelled")]
    assert fetch(shared, "select count(*) from rota.job") == (0,)
    ended = fetch(shared, "select to_jsonb(h) from rota.job_history h")[0]
    now = ended["finished_at"]
    assert ended == before | {
        "status": "cancelled", "finished_at": now, "updated_at": now, "cancel_requested_at": now,
        "cancel_reason": "not wanted any more",
        "last_error": "not wanted any more", "result": None, "release": None, "resolution": None,
    }  # fmt: skip
    assert insert(shared, idempotency_key="k") != []


@rule("M43", "M87")
def test_the_reason_takes_the_place_of_the_last_failure_whose_attempt_stays(
    shared: Connection,
) -> None:
    first, second = insert(shared, 2)
    hand = Hand(shared)
    hand.settle(*((job, FAIL) for job in hand.claim().jobs))
    cancel(shared, first)
    cancel(shared, second, why=None)
    assert shared.execute(
        "select last_error, error_type, verdict, failed_at is null from rota.jobs order by id"
    ).fetchall() == [
        ("not wanted any more", None, None, False),
        ("no route to host", "OSError", "transient", False),
    ]
    assert fetch(shared, "select distinct outcome, error_type from rota.attempt") == (
        "failed",
        "OSError",
    )


@rule("M87")
def test_of_a_job_that_runs_the_request_is_kept_and_the_first_reason_stays(
    shared: Connection,
) -> None:
    insert(shared)
    hand = Hand(shared)
    [job] = hand.claim().jobs
    assert cancel(shared, job.id, why="first") == [("requested", "running")]
    first = fetch(
        shared, "select cancel_requested_at, cancel_reason, status, claims, locked_by from rota.job"
    )
    assert first[1:] == ("first", "running", 1, "hand")
    assert cancel(shared, job.id, why="second") == [("requested", "running")]
    assert (
        fetch(
            shared,
            "select cancel_requested_at, cancel_reason, status, claims, locked_by from rota.job",
        )
        == first
    )


@rule("M45", "M87")
def test_a_long_reason_is_cut_from_any_caller(shared: Connection) -> None:
    [job] = insert(shared)
    cancel(shared, job, why="x\n" * 50_000)
    assert fetch(shared, "select length(cancel_reason), length(last_error) from rota.jobs") == (
        500,
        500,
    )


@rule("M87")
def test_each_of_many_is_answered_in_the_order_of_the_ids(shared: Connection) -> None:
    ids = insert(shared, 1_100)
    running = {job.id for job in Hand(shared).claim(300).jobs}
    shuffled = random.Random(1).sample([*ids, *ids[:10], 10**12], len(ids) + 11)
    answers = Hand(shared).run(act(Action.CANCEL, *shuffled))
    assert answers == [
        Answer(id_, "requested", "running")
        if id_ in running
        else Answer(id_, "cancelled", "cancelled")
        for id_ in ids
    ] + [Answer(10**12, "not found", None)]


@rule("M11", "M51", "M87")
@pytest.mark.parametrize(
    ("transition", "outcome"),
    [(FAIL, "cancelled"), (SNOOZE, None), (HAND_BACK, None)],
    ids=["failed", "snoozed", "handed back"],
)
def test_a_cancelled_job_never_runs_again(
    shared: Connection, transition: Transition, outcome: str | None
) -> None:
    insert(shared, idempotency_key="k")
    hand = Hand(shared)
    [job] = hand.claim().jobs
    cancel(shared, job.id)
    assert hand.settle((job, transition)) == {
        job.id: ops.Written("cancelled", None, "not wanted any more")
    }
    assert fetch(shared, "select count(*) from rota.job") == (0,)
    assert fetch(shared,
        "select status, cancel_reason, last_error, claims from rota.job_history") == (
        "cancelled", "not wanted any more", "not wanted any more", 2,
    )  # fmt: skip
    assert shared.execute("select outcome, next_run_at from rota.attempt").fetchall() == (
        [(outcome, None)] if outcome else []
    )
    assert fetch(shared, "select count(*) from rota.idempotency") == (0,)


@rule("M12", "M87")
def test_each_job_of_a_batch_heeds_its_own_request_to_cancel(shared: Connection) -> None:
    insert(shared, 4)
    Hand(shared, "other", release="2").send_heartbeat()
    hand = Hand(shared)
    jobs = hand.claim().jobs
    cancel(shared, jobs[1].id, jobs[3].id)
    # The last one waits for no other release, though one is alive.
    written = hand.settle(*zip(jobs, (FAIL, FAIL, HAND_BACK, PAYLOAD_MISMATCH), strict=True))
    said = [(job.id, str(written[job.id].status)) for job in jobs]
    assert [status for _, status in said] == ["failed", "cancelled", "queued", "cancelled"]
    assert shared.execute("select id, status from rota.jobs order by id").fetchall() == said


@rule("M33", "M51", "M87")
@pytest.mark.parametrize("losses", [None, 1], ids=["uncharged", "charged"])
def test_a_lost_job_with_a_request_to_cancel_is_over(
    shared: Connection, losses: int | None
) -> None:
    insert(shared, idempotency_key="k", losses=losses)
    hand = Hand(shared)
    [job] = hand.claim().jobs
    if losses:
        hand.start(job)
    cancel(shared, job.id)
    expire(shared)
    [lost] = hand.reap()
    assert (lost.job, lost.status, lost.reason) == (job.id, "cancelled", "not wanted any more")
    assert fetch(shared, "select status, cancel_reason from rota.job_history") == (
        "cancelled",
        "not wanted any more",
    )
    assert fetch(shared, "select outcome, error_type, next_run_at from rota.attempt") == (
        "cancelled",
        "LeaseExpired",
        None,
    )
    assert fetch(shared, "select count(*) from rota.idempotency") == (0,)


# Races, on two connections


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


@rule("M32", "M33", "M72")
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
        with pytest.raises(RowLocked):  # it asks to wait
            hand.run(ops.progress(said[1:2], waits=True))
        canceller.commit()
    assert hand.run(ops.renew([(job.id, job.claims) for job in jobs], hand.who)).cancels == {
        jobs[1].id: "not wanted any more"
    }


# Progress


@rule("M32")
def test_a_worker_that_lost_the_job_writes_no_progress(shared: Connection) -> None:
    insert(shared, 2)
    late, hand = Hand(shared, "late"), Hand(shared)
    lost, kept = late.claim().jobs
    shared.execute(
        "update rota.job set locked_until = rota.clock() - interval '1 s' where id = %s", [lost.id]
    )
    hand.reap()
    shared.execute("update rota.job set run_at = rota.clock() where id = %s", [lost.id])
    assert late.run(
        ops.progress([(lost.id, lost.claims, '{"done": 1}'), (kept.id, kept.claims, '{"done": 2}')])
    ) == {kept.id: True}
    assert [job.id for job in hand.claim().jobs] == [lost.id]
    assert late.run(ops.progress([(lost.id, lost.claims, '{"done": 1}')])) == {}
    assert shared.execute("select progress ->> 'done' from rota.job order by id").fetchall() == [
        (None,),
        ("2",),
    ]


# Python


@rule("M13", "M87")
def test_the_day_s_partition_is_made_if_it_is_missing(
    database: str, connection: Connection
) -> None:
    [job] = insert(connection)
    drop_days(connection, "job_history")
    with psycopg.connect(database) as own:
        assert cancel(own, job) == [("cancelled", "cancelled")]
