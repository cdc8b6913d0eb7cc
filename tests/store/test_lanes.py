"""Lanes: jobs with one group_key run one after the other, in the order of becoming due."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.errors import UsageError
from rota.model.job import Action, Job
from rota.model.settle import Transition
from rota.store import ops
from tests.store.work import (
    FAIL,
    GIVE_UP,
    HAND_BACK,
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


@pytest.fixture
def another(second: Connection) -> Connection:
    """Another session: here the second is a job."""
    return second


def claim_ids(hand: Hand, limit: int = 100) -> list[int]:
    """The jobs of one claim."""
    return [job.id for job in hand.claim(limit).jobs]


def end(hand: Hand, job: Job, transition: Transition = SUCCEED) -> None:
    """Write how a job with a lane ended, as a finisher does."""
    ending = ops.Ending(job, transition, 0.5, frees_place=True)
    write = ops.finish if transition.status.is_over else ops.leave
    written = hand.run(write([ending], hand.release))
    assert isinstance(written[job.id], ops.Written), written


def declare(connection: Connection, **columns: Any) -> None:
    """Declare the type t."""
    given = {"name": "t", **columns}
    connection.execute(
        f"insert into rota.job_type ({', '.join(given)}) values "
        f"({', '.join(f'%({name})s' for name in given)})".encode(),
        given,
    )


def statuses(connection: Connection) -> list[tuple[str, bool | None]]:
    """(status, in_lane) of all jobs, by id."""
    rows = connection.execute("select status, in_lane from rota.job order by id").fetchall()
    return [(row[0], row[1]) for row in rows]


def sweep(hand: Hand) -> int:
    """Look for free places once; how many jobs got one."""
    return hand.run(ops.sweep_lanes("", 100)).promoted


def count_stripes(connection: Connection) -> int:
    """How many stripes this session holds."""
    rows = connection.execute(
        "select from pg_locks where pid = pg_backend_pid() and classid = 1919906914"
    )
    return len(rows.fetchall())


# The order of a lane


@rule("M60")
def test_one_job_of_a_lane_is_claimed_and_the_others_are_parked(connection: Connection) -> None:
    first, *_ = insert(connection, 3, group_key="g")
    plain = insert(connection, 2)
    hand = Hand(connection)
    claimed = hand.claim()
    assert [job.id for job in claimed.jobs] == [first, *plain]
    assert claimed.jobs[0].group_key == "g"
    assert statuses(connection)[:3] == [("running", True), ("waiting", None), ("waiting", None)]
    assert claim_ids(hand) == []


@rule("M60")
def test_the_end_of_a_job_makes_the_next_of_its_lane_due_in_the_same_transaction(
    connection: Connection,
) -> None:
    ids = insert(connection, 3, group_key="g")
    hand = Hand(connection)
    for id_ in ids:
        claimed = hand.claim().jobs
        assert [job.id for job in claimed] == [id_]
        end(hand, claimed[0])
    assert statuses(connection) == []


@rule("M60")
def test_a_lane_runs_by_priority_then_time_then_id(connection: Connection) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    connection.execute("alter table rota.job disable trigger job_insert_fill")
    late = insert(connection, group_key="g", run_at=now + timedelta(hours=1))
    early = insert(connection, 2, group_key="g", run_at=now)
    urgent = insert(connection, group_key="g", priority=50, run_at=now + timedelta(hours=2))
    hand = Hand(connection, priorities=[0, 50])
    order = []
    for _ in range(4):
        [job] = hand.claim().jobs
        order.append(job.id)
        end(hand, job)
    assert order == [*urgent, *early, *late]


@rule("M60")
def test_a_job_that_is_not_due_holds_back_no_later_one_that_is(connection: Connection) -> None:
    insert(connection, group_key="g", priority=50, run_at="2099-01-01Z")
    insert(connection, 5, group_key="g", run_at="2099-01-01Z")
    due = insert(connection, 2, group_key="g", priority=-50)
    hand = Hand(connection, priorities=[50, 0, -50])
    [job] = hand.claim().jobs
    end(hand, job)
    assert [job.id, *claim_ids(hand)] == due


@rule("M60")
def test_a_lane_with_a_capacity_runs_so_many_at_once(connection: Connection) -> None:
    ids = insert(connection, 5, group_key="g", group_capacity=2)
    hand = Hand(connection)
    first, second = hand.claim().jobs
    assert [first.id, second.id] == ids[:2]
    end(hand, second)
    [third] = hand.claim().jobs
    assert third.id == ids[2]
    end(hand, first)
    end(hand, third)
    assert claim_ids(hand) == ids[3:]


@rule("M60")
def test_a_lane_with_a_capacity_runs_in_the_order_of_time_and_not_of_ids(
    connection: Connection,
) -> None:
    *_, fourth, third, second, first = insert(connection, 6, group_key="g", group_capacity=2)
    connection.execute("update rota.job set run_at = run_at - id * interval '1 minute'")
    hand = Hand(connection)
    [one] = hand.claim(1).jobs
    assert [one.id, *claim_ids(hand, 1)] == [first, second]
    assert claim_ids(hand) == []  # the others are parked
    end(hand, one)
    [other] = hand.claim().jobs
    end(hand, other)
    assert [other.id, *claim_ids(hand)] == [third, fourth]


@rule("M60")
def test_two_workers_that_claim_one_lane_at_once_get_one_job(
    connection: Connection, another: Connection
) -> None:
    """Each has locked a job of the lane before the other decides."""
    first, second = insert(connection, 2, group_key="g")
    a, b = Hand(connection, "a"), Hand(another, "b")
    with connection.transaction():
        assert claim_ids(a, 1) == [first]
        # b has the other row, and gives up the lane that a holds.
        assert claim_ids(b) == []
    assert statuses(connection) == [("running", True), ("queued", None)]
    assert claim_ids(b) == []
    assert statuses(connection) == [("running", True), ("waiting", None)]
    assert second


@rule("M60")
def test_a_claim_decides_after_the_one_that_it_waited_for(
    connection: Connection, another: Connection
) -> None:
    insert(connection, 2, group_key="g")
    a, b = Hand(connection, "a"), Hand(another, "b")
    waiting = waits(connection, another)
    found: list[list[int]] = []
    with connection.transaction():
        assert len(claim_ids(a, 1)) == 1
        thread = threading.Thread(target=lambda: found.append(claim_ids(b)))
        thread.start()
        eventually(waiting, what="b waits for the stripe")
    thread.join()
    assert found == [[]]
    assert [status for status, _ in statuses(connection)] == ["running", "waiting"]


@rule("M60")
def test_claims_go_round_the_lanes(connection: Connection) -> None:
    """One tenant's many jobs are parked at once, so another's single one is claimed next."""
    many = insert(connection, 3_000, group_key="big")
    [single] = insert(connection, group_key="small")
    hand = Hand(connection)
    assert claim_ids(hand, 10) == [many[0]]
    found = []
    for _ in range(5):
        found += claim_ids(hand, 10)
    assert found == [single]


def test_a_claim_that_parks_jobs_says_how_far_it_came(connection: Connection) -> None:
    ids = insert(connection, 6, group_key="g")
    claimed = Hand(connection).claim(4)
    assert [job.id for job in claimed.jobs] == ids[:1]
    assert (claimed.count(), claimed.seen[-1].id) == (4, ids[3])


# What keeps a place and what frees it


@rule("M60")
@pytest.mark.parametrize("transition", [FAIL, SNOOZE, HAND_BACK])
def test_a_job_that_comes_back_keeps_its_place(
    connection: Connection, transition: Transition
) -> None:
    first, _ = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, transition)
    assert statuses(connection)[1] == ("waiting", None)
    connection.execute("update rota.job set run_at = rota.clock() where id = %s", [first])
    assert claim_ids(hand) == [first]


@rule("M60")
@pytest.mark.parametrize("transition", [FAIL, SNOOZE])
def test_a_type_may_release_its_lane_while_it_backs_off(
    connection: Connection, transition: Transition
) -> None:
    declare(connection, on_retry="release")
    first, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, transition)
    assert claim_ids(hand) == [second]
    connection.execute("update rota.job set run_at = rota.clock() where id = %s", [first])
    assert claim_ids(hand) == []
    assert statuses(connection) == [("waiting", None), ("running", True)]


@rule("M60")
def test_a_job_that_was_handed_back_keeps_its_place_even_if_its_type_releases_it(
    connection: Connection,
) -> None:
    declare(connection, on_retry="release")
    insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    connection.execute(
        "select rota.job_leave_laned(jsonb_build_array(jsonb_build_object('id', %s::bigint, "
        "'claims', 1, 'status', 'queued', 'charged', false, 'delay_s', 60, "
        "'waits_for', 'limit smtp')), '1')",
        [job.id],
    )
    assert statuses(connection) == [("queued", True), ("waiting", None)]


@rule("M60")
def test_a_dead_job_frees_its_lane(connection: Connection) -> None:
    _, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, GIVE_UP)
    assert claim_ids(hand) == [second]


@rule("M60")
def test_a_dead_job_may_halt_its_lane_until_a_person_requeues_it(connection: Connection) -> None:
    declare(connection, on_dead="halt")
    insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, GIVE_UP)
    assert statuses(connection) == [("dead", True), ("waiting", None)]
    assert connection.execute("select waits_for from rota.job where in_lane").fetchone() == (
        "person",
    )
    [answer] = hand.run(act(Action.REQUEUE, job.id))
    assert claim_ids(hand) == [answer.new_id]


@rule("M60")
def test_a_halted_lane_goes_on_when_the_dead_job_is_ignored(connection: Connection) -> None:
    declare(connection, on_dead="halt")
    _, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, GIVE_UP)
    hand.run(act(Action.ARCHIVE, job.id, why="of no use"))
    assert sweep(hand) == 1
    assert claim_ids(hand) == [second]


@rule("M60", "M33")
def test_a_lost_job_keeps_its_place_while_attempts_are_left(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g", max_attempts=2)
    hand = Hand(connection)
    for status in ("failed", "dead"):
        [job] = hand.claim().jobs
        assert job.id == first
        hand.start(job)
        expire(connection)
        assert [lost.status for lost in hand.reap()] == [status]
        connection.execute("update rota.job set run_at = rota.clock() where status = 'failed'")
    assert claim_ids(hand) == [second]


@rule("M60", "M33")
def test_a_charged_loss_frees_the_lane_of_a_type_that_releases_it(connection: Connection) -> None:
    connection.execute("insert into rota.job_type (name, on_retry) values ('t', 'release')")
    _, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.start(job)
    expire(connection)
    assert [lost.status for lost in hand.reap()] == ["failed"]
    assert claim_ids(hand) == [second]


@rule("M60", "M36")
def test_a_job_that_expires_before_its_turn_halts_no_lane(connection: Connection) -> None:
    connection.execute("insert into rota.job_type (name, on_dead) values ('t', 'halt')")
    _, second, third = insert(connection, 3, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    connection.execute(
        "update rota.job set expires_at = rota.clock() - interval '1 s' where id = %s", [second]
    )
    hand.run(ops.expire("w", datetime(1970, 1, 1, tzinfo=UTC), 0, 10))
    end(hand, job)
    assert claim_ids(hand) == [third]


@rule("M60", "M36")
def test_a_job_that_expires_lets_the_next_of_its_lane_run(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g")
    connection.execute("update rota.job set queue = 'unserved' where id = %s", [first])
    hand = Hand(connection)
    assert claim_ids(hand) == []
    connection.execute(
        "update rota.job set expires_at = rota.clock() - interval '1 s' where id = %s", [first]
    )
    hand.run(ops.expire("w", datetime(1970, 1, 1, tzinfo=UTC), 0, 10))
    assert claim_ids(hand) == [second]


@rule("M60")
def test_the_next_job_runs_after_a_cancel_in_a_transaction_that_takes_no_stripe(
    connection: Connection, another: Connection
) -> None:
    first, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job, FAIL)
    with another.transaction():
        another.execute("select rota.job_cancel(array[%s::bigint])", [first])
        assert count_stripes(another) == 0
        assert sweep(hand) == 0
    assert sweep(hand) == 1
    assert claim_ids(hand) == [second]


@rule("M60")
def test_a_holder_that_was_deleted_by_hand_does_not_stop_its_lane(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    assert claim_ids(hand) == [first]
    connection.execute("delete from rota.job where id = %s", [first])
    assert sweep(hand) == 1
    assert claim_ids(hand) == [second]


@rule("M60")
def test_a_promoted_job_that_moves_to_later_lets_the_others_pass(connection: Connection) -> None:
    first, second, third = insert(connection, 3, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job)
    moved = ops.Moved(delay=timedelta(hours=1))
    hand.run(ops.act(ops.ActionRequest(Action.RESCHEDULE, "ann", moved=moved), [second]))
    assert statuses(connection) == [("queued", None), ("waiting", None)]
    sweep(hand)
    assert claim_ids(hand) == [third]
    assert first


@rule("M60")
def test_a_parked_job_can_be_moved_to_another_time(connection: Connection) -> None:
    _, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    claim_ids(hand)
    moved = ops.Moved(delay=timedelta(hours=1))
    [answer] = hand.run(ops.act(ops.ActionRequest(Action.RESCHEDULE, "ann", moved=moved), [second]))
    assert (answer.answer, answer.status) == ("done", "queued")


@rule("M60", "M87")
def test_retry_keeps_the_place_and_discard_frees_it(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    claim_ids(hand)
    hand.run(act(Action.RETRY, first))
    assert claim_ids(hand) == [first]
    hand.run(act(Action.DISCARD, first))
    sweep(hand)
    assert claim_ids(hand) == [second]


@rule("M60", "M54")
def test_a_job_that_ends_in_its_own_transaction_takes_no_stripe_there(
    connection: Connection, another: Connection
) -> None:
    _, second = insert(connection, 2, group_key="g")
    hand = Hand(another)
    [job] = hand.claim().jobs
    with another.transaction():
        assert hand.run(ops.complete(job, 0.1, None, "1"))
        assert count_stripes(another) == 0
    hand.run(ops.free_places([(job, "t")]))
    assert claim_ids(hand) == [second]


# Other ways to claim


@rule("M60")
def test_a_job_claimed_by_its_id_waits_for_its_lane_too(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g")
    [later] = insert(connection, group_key="g", run_at="2099-01-01Z")
    hand = Hand(connection)
    before = statuses(connection)
    for id_ in (second, later):
        with pytest.raises(
            UsageError, match=f"waits for its ordered group.* job {first} comes first"
        ):
            hand.run(ops.claim_one(hand.who, id_))
    assert statuses(connection) == before  # a refusal changes nothing
    assert [job.id for job in hand.run(ops.claim_one(hand.who, first)).jobs] == [first]
    with pytest.raises(UsageError, match=f"job {first} comes first"):
        hand.run(ops.claim_one(hand.who, second))


@rule("M60", "M15")
def test_a_worker_in_sql_keeps_to_lanes(connection: Connection) -> None:
    ids = insert(connection, 3, group_key="g")
    claim = "select id, claims from rota.claim('default', '{t}', 'w', 5)"
    for id_ in ids:
        rows = connection.execute(claim).fetchall()
        assert [row[0] for row in rows] == [id_]
        connection.execute("select rota.succeed(%s, %s)", rows[0])
    assert connection.execute(claim).fetchall() == []


@rule("M60", "M15")
def test_a_claim_in_sql_passes_thousands_of_parked_jobs(connection: Connection) -> None:
    [first, *_] = insert(connection, 2_500, group_key="g")
    [other] = insert(connection)
    claim = "select id from rota.claim('default', '{t}', 'w', 1)"
    assert connection.execute(claim).fetchall() == [(first,)]
    assert connection.execute(claim).fetchall() == [(other,)]


@rule("M60")
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_claim_under_an_old_snapshot_is_refused_in_words(
    connection: Connection, level: str
) -> None:
    insert(connection)
    claim = "select id from rota.claim('default', '{t}', 'w', 5)"
    with connection.transaction():
        connection.execute(f"set transaction isolation level {level}".encode())
        assert len(connection.execute(claim).fetchall()) == 1
    insert(connection, group_key="g")
    connection.execute(f"set default_transaction_isolation = '{level}'".encode())
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="isolation level"):
        connection.execute(claim)


@rule("M60")
def test_a_stripe_that_is_held_for_long_stops_neither_claims_nor_ends(
    connection: Connection, another: Connection
) -> None:
    """A program that claims in SQL, in a transaction that it leaves open, holds its stripes."""
    _, second = insert(connection, 2, group_key="g")
    [plain] = insert(connection)
    hand = Hand(connection)
    [job, other] = hand.claim().jobs
    connection.execute("set statement_timeout = '5s'")  # as a worker's
    with another.transaction():
        another.execute("select rota.stripes_lock(array['lane g'], 0)")
        insert(connection, group_key="g")
        insert(connection)
        assert len(claim_ids(hand)) == 1
        end(hand, job)
    assert sweep(hand) == 1
    assert claim_ids(hand) == [second]
    assert (plain, other.id) == (plain, plain)


@rule("M60")
def test_all_stripes_held_for_long_stop_no_job_without_a_lane(
    connection: Connection, another: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key) "
        "select 't', 'default', 0, n::text from generate_series(1, 500) n"
    )
    [plain] = insert(connection)
    connection.execute("set statement_timeout = '5s'")  # as a worker's
    with another.transaction():
        another.execute(
            "select rota.stripes_lock(array(select 'lane ' || generate_series(1, 5000)), 0)"
        )
        assert claim_ids(Hand(connection), 1_000) == [plain]
    assert len(claim_ids(Hand(connection), 1_000)) == 500


# Triggers of the user's


def test_a_trigger_that_refuses_to_park_a_job_stops_no_other(connection: Connection) -> None:
    insert(connection, 3, group_key="g")
    [plain] = insert(connection)
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "raise exception 'not this one'; end $$; create trigger refuse before update on rota.job "
        "for each row when (new.status = 'waiting' and new.id = 2) execute function refuse()"
    )
    hand = Hand(connection)
    assert claim_ids(hand) == [1, plain]
    assert [status for status, _ in statuses(connection)] == [
        "running", "queued", "waiting", "running",
    ]  # fmt: skip
