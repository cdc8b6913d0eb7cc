"""Caps: at most so many jobs of a type or of a queue run at once, over all workers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rota.errors import UsageError
from rota.model.job import Action, Status
from rota.model.settle import Transition
from rota.store import ops
from tests.store.test_lanes import claim_ids, end
from tests.store.work import (
    FAIL,
    FAILURE,
    HAND_BACK,
    SNOOZE,
    Connection,
    Hand,
    act,
    expire,
    insert,
    waits,
)
from tests.support.rules import rule
from tests.support.wait import eventually


def cap_type(connection: Connection, max_running: int | None, name: str = "t") -> None:
    connection.execute(
        "insert into rota.job_type (name, max_running) values (%s, %s) "
        "on conflict (name) do update set max_running = excluded.max_running",
        [name, max_running],
    )


def cap_queue(connection: Connection, most: int | None, name: str = "default") -> None:
    connection.execute(
        "insert into rota.queue (name, max_running) values (%s, %s) "
        "on conflict (name) do update set max_running = excluded.max_running",
        [name, most],
    )


def lines(connection: Connection) -> list[tuple[str, str | None]]:
    """(status, waits_for) of all jobs, by id."""
    rows = connection.execute("select status, waits_for from rota.job order by id").fetchall()
    return [(row[0], row[1]) for row in rows]


@rule("M61")
def test_as_many_run_as_the_cap_says_and_the_others_wait_for_it(connection: Connection) -> None:
    cap_type(connection, 2)
    connection.execute("update rota.job_type set aliases = '{old}'")
    cap_queue(connection, 2, "mail")
    of_type = insert(connection, 3) + insert(connection, job_type="old")
    in_queue = insert(connection, 4, job_type="u", queue="mail")
    hand = Hand(connection, types=["t", "old", "u"], queues=["default", "mail"])
    claimed = hand.claim()
    run = [*of_type[:2], *in_queue[:2]]
    assert sorted(job.id for job in claimed.jobs) == run
    assert (sorted(claimed.capped), claimed.count()) == (run, 8)
    assert [row for row in lines(connection) if row[0] == "waiting"] == [
        *[("waiting", "type t")] * 2,
        *[("waiting", "queue mail")] * 2,
    ]
    assert claim_ids(hand) == []
    for job in claimed.jobs:
        if job.id in (of_type[0], in_queue[0]):
            end(hand, job)
    assert sorted(claim_ids(hand)) == [of_type[2], in_queue[2]]


@rule("M61")
def test_two_claims_at_once_do_not_exceed_a_cap(connection: Connection, second: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 2)
    a, b = Hand(connection, "a"), Hand(second, "b")
    waiting = waits(connection, second)
    found: list[list[int]] = []
    with connection.transaction():
        assert len(claim_ids(a, 1)) == 1
        thread = threading.Thread(target=lambda: found.append(claim_ids(b)))
        thread.start()
        eventually(lambda: found or waiting())
    thread.join()
    assert found == [[]]


@rule("M61")
def test_a_capped_type_holds_back_no_other_type_of_its_queue(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 300)
    [other] = insert(connection, job_type="u")
    hand = Hand(connection, types=["t", "u"])
    found = [id_ for _ in range(5) for id_ in claim_ids(hand, 10)]
    assert found[1:] == [other]


@rule("M61", "M60")
def test_a_capped_type_with_many_lanes_holds_back_no_other_type_of_its_queue(
    connection: Connection,
) -> None:
    cap_type(connection, 1)
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key) "
        "select 't', 'default', 0, 'lane ' || n % 150 from generate_series(0, 199) n"
    )
    [other] = insert(connection, job_type="u")
    hand = Hand(connection, types=["t", "u"])
    found = [id_ for _ in range(5) for id_ in claim_ids(hand, 10)]
    assert found[1:] == [other]
    parked = connection.execute(
        "select id < 151, in_lane, waits_for, count(*) from rota.job where status = 'waiting' "
        "group by 1, 2, 3 order by 1"
    ).fetchall()
    assert parked == [(False, None, None, 50), (True, True, "type t", 149)]


@rule("M33", "M60", "M61", "M87")
@pytest.mark.parametrize("cap", [cap_type, cap_queue], ids=["of its type", "of its queue"])
def test_a_job_that_leaves_returns_its_slot(
    connection: Connection, cap: Callable[[Connection, int], None]
) -> None:
    cap(connection, 1)
    hand = Hand(connection)
    for how in (FAIL, SNOOZE, HAND_BACK, "lost", "discarded"):
        connection.execute("truncate rota.job")
        insert(connection, 2)
        [job] = hand.claim().jobs
        if isinstance(how, Transition):
            hand.run(ops.leave([ops.Ending(job, how, 0.1, frees_place=True)], "1"))
        elif how == "lost":
            expire(connection)
            hand.reap()
        else:
            hand.run(act(Action.DISCARD, job.id))
            assert hand.run(ops.sweep_rooms("", 100)).released == 1
        capped = connection.execute("select count(*) from rota.job where capped").fetchone()
        assert capped == (0,), how
        assert all(status != "waiting" for status, _ in lines(connection)), how
        assert len(claim_ids(hand)) == 1, how


@rule("M61", "M62")
def test_a_capped_job_that_a_limit_puts_back_twice_waits_since_the_first_time(
    connection: Connection,
) -> None:
    cap_type(connection, 1)
    insert(connection)
    hand = Hand(connection)
    hand_back = Transition(
        "snooze", Status.QUEUED, charged=False, delay_s=0.0, waits_for="limit smtp"
    )
    since = []
    for _ in range(2):
        hand.settle((hand.claim().jobs[0], hand_back))
        since += connection.execute("select waits_since from rota.job").fetchall()
    assert since[0] == since[1] != (None,)
    fail = Transition("retry", Status.FAILED, delay_s=0.0, failure=FAILURE)
    hand.settle((hand.claim().jobs[0], fail))
    assert connection.execute("select waits_since from rota.job").fetchone() == (None,)


@rule("M61", "M60")
def test_a_job_of_a_lane_that_waits_for_a_cap_keeps_its_place(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection)
    laned = insert(connection, 2, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    rows = connection.execute(
        "select status, in_lane, waits_for from rota.job where id = any (%s) order by id", [laned]
    ).fetchall()
    assert rows == [("waiting", True, "type t"), ("waiting", None, None)]
    end(hand, job)
    assert claim_ids(hand) == laned[:1]


@rule("M61")
def test_a_raised_cap_and_a_removed_one_let_parked_jobs_run(connection: Connection) -> None:
    cap_type(connection, 1)
    ids = insert(connection, 5)
    hand = Hand(connection)
    assert claim_ids(hand) == ids[:1]
    cap_type(connection, 3)
    connection.execute("select rota.caps_release(array['type t'])")
    assert claim_ids(hand) == ids[1:3]
    cap_type(connection, None)  # by hand: the sweep finds it
    assert hand.run(ops.sweep_rooms("", 100)).released == 2
    assert claim_ids(hand) == ids[3:]
    cap_type(connection, 5)  # by hand, and those that run since before it are counted
    assert hand.run(ops.sweep_rooms("", 100, counts=True)).rooms == 0
    assert insert(connection) and claim_ids(hand) == []


@rule("M61")
def test_a_new_cap_counts_the_jobs_that_run_already(connection: Connection) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    assert len(claim_ids(hand, 2)) == 2
    cap_type(connection, 2)
    connection.execute("select rota.caps_release(array['type t'])")
    assert claim_ids(hand) == []
    assert lines(connection)[2] == ("waiting", "type t")


@rule("M61")
def test_a_job_that_waited_is_not_passed_by_a_newcomer(connection: Connection) -> None:
    cap_type(connection, 1)
    ids = insert(connection, 3)
    hand = Hand(connection, priorities=[0, 50])
    [job] = hand.claim().jobs
    insert(connection)
    end(hand, job)  # the second one may compete again, behind the newcomer
    assert claim_ids(hand, 1) == []  # the newcomer joins the line
    [job] = hand.claim().jobs
    assert job.id == ids[1]
    assert lines(connection) == [("running", None), *[("waiting", "type t")] * 2]
    [urgent] = insert(connection, priority=50)
    end(hand, job)
    assert claim_ids(hand) == [urgent], "an urgent one passes them"


@rule("M61", "M88")
def test_many_newcomers_soon_let_those_that_waited_take_the_free_slots(
    connection: Connection,
) -> None:
    cap_type(connection, 2)
    ids = insert(connection, 10)
    hand = Hand(connection)
    running = hand.claim().jobs
    insert(connection, 1_000)
    for job in running:
        end(hand, job)  # two that waited may compete again, behind the newcomers
    found = [claim_ids(hand, 10) for _ in range(4)]
    assert [id_ for some in found for id_ in some] == ids[2:4]


@rule("M61")
def test_the_parked_jobs_of_a_paused_queue_hold_back_no_other_queue(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 20, queue="paused")
    hand = Hand(connection, queues=["paused", "default"])
    [job] = hand.claim().jobs
    connection.execute("select rota.queue_pause('paused'::text)")
    first, second = insert(connection, 2)
    end(hand, job)
    [job] = hand.claim().jobs
    assert job.id == first
    end(hand, job)
    assert claim_ids(hand) == [second]


@rule("M61", "M33")
@pytest.mark.parametrize("lacks", ["queue", "type"])
def test_parked_jobs_that_no_worker_can_take_hold_back_no_others(
    connection: Connection, lacks: str
) -> None:
    """A deploy has left their queue, or their type, without a worker."""
    if lacks == "queue":
        cap_type(connection, 1)
        insert(connection, 20, queue="left")
    else:
        cap_queue(connection, 1)
        insert(connection, 20, job_type="gone")
    hand = Hand(connection, types=["gone", "t"], queues=["left", "default"])
    [job] = hand.claim().jobs
    end(hand, job)
    [job] = hand.claim().jobs
    assert hand.run(ops.sweep_rooms("", 100)).released == 0, (
        "while no worker lives, all stays as it is"
    )
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('live', 'h', 1, '1', '1', '{t}', '{\"default\": null}')"
    )
    first, second = insert(connection, 2)
    hand.types, hand.queues = ["t"], ["default"]
    assert claim_ids(hand) == []
    end(hand, job)
    hand.run(ops.sweep_rooms("", 100))
    [job] = hand.claim().jobs
    assert job.id == first
    end(hand, job)
    assert claim_ids(hand) == [second]


@rule("M61")
def test_a_job_claimed_by_its_id_asks_its_cap_too(connection: Connection) -> None:
    cap_type(connection, 1)
    first, second = insert(connection, 2)
    hand = Hand(connection)
    assert [job.id for job in hand.run(ops.claim_one(hand.who, first)).jobs] == [first]
    with pytest.raises(UsageError, match="as many jobs of type 't' run as its limit allows"):
        hand.run(ops.claim_one(hand.who, second))
    assert lines(connection)[1] == ("queued", None)


@rule("M61", "M15")
def test_a_worker_in_sql_keeps_to_caps(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 3)
    claim = "select id, claims from rota.claim('default', '{t}', 'w', 5)"
    for _ in range(3):
        [row] = connection.execute(claim).fetchall()
        assert connection.execute(claim).fetchall() == []
        connection.execute("select rota.succeed(%s, %s)", row)
    assert lines(connection) == []
