"""Caps: at most so many jobs of a type or of a queue run at once, over all workers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.errors import UsageError
from rota.model.job import Action, Status
from rota.model.settle import Transition
from rota.store import ops
from tests.store.test_lane_stress import Fleet
from tests.store.test_lanes import claim_ids, end
from tests.store.work import FAIL, FAILURE, HAND_BACK, SNOOZE, SUCCEED, Hand, act, expire, insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def cap_type(connection: Connection, max_running: int | None, name: str = "t") -> None:
    """Declare a type with a cap."""
    connection.execute(
        "insert into rota.job_type (name, max_running) values (%s, %s) "
        "on conflict (name) do update set max_running = excluded.max_running",
        [name, max_running],
    )


def cap_queue(connection: Connection, most: int | None, name: str = "default") -> None:
    """Give a queue a cap."""
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
@pytest.mark.parametrize("kind", ["type t", "queue default"])
def test_as_many_run_as_the_cap_says_and_the_others_wait_for_it(
    connection: Connection, kind: str
) -> None:
    (cap_type if kind == "type t" else cap_queue)(connection, 2)
    ids = insert(connection, 4)
    hand = Hand(connection)
    claimed = hand.claim()
    assert [job.id for job in claimed.jobs] == ids[:2]
    assert claimed.capped == set(ids[:2])
    assert claimed.count() == 4
    assert lines(connection)[2:] == [("waiting", kind)] * 2
    assert claim_ids(hand) == []
    end(hand, claimed.jobs[0])
    assert claim_ids(hand) == ids[2:3]


@rule("M61")
def test_two_claims_at_once_do_not_exceed_a_cap(connection: Connection, second: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 2)
    a, b = Hand(connection, "a"), Hand(second, "b")
    found: list[list[int]] = []
    with connection.transaction():
        assert len(claim_ids(a, 1)) == 1
        thread = threading.Thread(target=lambda: found.append(claim_ids(b)))
        thread.start()
        thread.join(0.05)
    thread.join()
    assert found == [[]]


@rule("M61")
def test_the_names_of_a_type_share_its_cap(connection: Connection) -> None:
    cap_type(connection, 1)
    connection.execute("update rota.job_type set aliases = '{old}'")
    insert(connection, job_type="old")
    insert(connection)
    assert len(claim_ids(Hand(connection, types=["t", "old"]))) == 1
    assert lines(connection)[1] == ("waiting", "type t")


@rule("M61")
def test_a_capped_type_holds_back_no_other_type_of_its_queue(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 3_000)
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
        "select 't', 'default', 0, 'lane ' || n % 1500 from generate_series(0, 1999) n"
    )
    [other] = insert(connection, job_type="u")
    hand = Hand(connection, types=["t", "u"])
    found = [id_ for _ in range(5) for id_ in claim_ids(hand, 10)]
    assert found[1:] == [other]
    parked = connection.execute(
        "select id < 1501, in_lane, waits_for, count(*) from rota.job where status = 'waiting' "
        "group by 1, 2, 3 order by 1"
    ).fetchall()
    assert parked == [(False, None, None, 500), (True, True, "type t", 1499)]


@rule("M61", "M60")
@pytest.mark.parametrize("transition", [FAIL, SNOOZE, HAND_BACK])
def test_a_job_that_leaves_returns_its_slot(connection: Connection, transition: Transition) -> None:
    cap_type(connection, 1)
    first, second = insert(connection, 2)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    ending = ops.Ending(job, transition, 0.1, frees_place=True)
    hand.run(ops.leave([ending], "1"))
    assert connection.execute("select count(*) from rota.job where capped").fetchone() == (0,)
    assert ("waiting", "type t") not in lines(connection)
    assert len(claim_ids(hand)) == 1
    assert (first, second) == (1, 2)


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


@rule("M61", "M33")
def test_a_lost_job_returns_its_slot(connection: Connection) -> None:
    cap_queue(connection, 1)
    first, second = insert(connection, 2)
    hand = Hand(connection)
    assert claim_ids(hand) == [first]
    expire(connection)
    hand.reap()
    assert len(claim_ids(hand)) == 1
    assert second


@rule("M61", "M87")
def test_a_job_taken_from_its_worker_returns_its_slot_by_the_sweep(connection: Connection) -> None:
    cap_type(connection, 1)
    first, second = insert(connection, 2)
    hand = Hand(connection)
    assert claim_ids(hand) == [first]
    hand.run(act(Action.DISCARD, first))
    assert hand.run(ops.sweep_caps()).released == 1
    assert claim_ids(hand) == [second]


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
    assert hand.run(ops.sweep_caps()).released == 2
    assert claim_ids(hand) == ids[3:]


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
    hand = Hand(connection)
    [job] = hand.claim().jobs
    [late] = insert(connection)
    end(hand, job)  # the second one may compete again, behind the newcomer
    assert claim_ids(hand, 1) == []  # the newcomer joins the line
    assert claim_ids(hand) == ids[1:2]
    assert lines(connection) == [("running", None), *[("waiting", "type t")] * 2]
    assert late == 4


@rule("M61", "M88")
def test_many_newcomers_soon_let_those_that_waited_take_the_free_slots(
    connection: Connection,
) -> None:
    cap_type(connection, 2)
    ids = insert(connection, 10)
    hand = Hand(connection)
    running = hand.claim().jobs
    assert claim_ids(hand) == []
    insert(connection, 3_000)
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


def live(connection: Connection, queue: str, types: list[str]) -> None:
    """Register a worker that lives, and serves this queue and these types."""
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('live', 'h', 1, '1', '1', %s, jsonb_build_object(%s::text, null))",
        [types, queue],
    )


@rule("M61", "M33")
def test_parked_jobs_of_a_queue_that_no_worker_serves_hold_back_no_other_queue(
    connection: Connection,
) -> None:
    cap_type(connection, 1)
    insert(connection, 20, queue="left")
    hand = Hand(connection, queues=["left", "default"])
    [job] = hand.claim().jobs
    live(connection, "default", ["t"])  # now no worker serves the queue `left`
    first, second = insert(connection, 2)
    hand.queues = ["default"]
    assert claim_ids(hand) == []
    end(hand, job)
    assert hand.run(ops.sweep_caps()).released == 19
    [job] = hand.claim().jobs
    assert job.id == first
    end(hand, job)
    assert claim_ids(hand) == [second]
    assert [status for status, _ in lines(connection)] == ["queued"] * 19 + ["running"]


@rule("M61")
def test_parked_jobs_of_a_type_that_no_worker_knows_hold_back_no_others_of_their_queue(
    connection: Connection,
) -> None:
    cap_queue(connection, 1)
    insert(connection, 20, job_type="gone")
    hand = Hand(connection, types=["gone", "t"])
    [job] = hand.claim().jobs
    live(connection, "default", ["t"])
    [known] = insert(connection)
    hand.types = ["t"]
    assert claim_ids(hand) == []
    end(hand, job)
    hand.run(ops.sweep_caps())
    assert claim_ids(hand) == [known]


@rule("M61")
def test_a_line_stays_as_it_is_while_no_worker_lives(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 4)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.settle((job, HAND_BACK))
    assert hand.run(ops.sweep_caps()).released == 1
    assert lines(connection)[2:] == [("waiting", "type t")] * 2


@rule("M61")
def test_an_urgent_job_passes_those_that_wait(connection: Connection) -> None:
    cap_type(connection, 1)
    insert(connection, 3)
    hand = Hand(connection, priorities=[0, 50])
    [job] = hand.claim().jobs
    [urgent] = insert(connection, priority=50)
    end(hand, job)
    assert claim_ids(hand) == [urgent]


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


@rule("M61")
@pytest.mark.slow
def test_eight_workers_never_exceed_caps_and_leave_nothing_parked(
    database: str, connection: Connection
) -> None:
    """Two types with a cap in a queue with one, beside a type without: as many as the rows that the
    server has committed as running say, at any moment."""
    caps = {"t": 3, "u": 2}
    for name, most in caps.items():
        cap_type(connection, most, name)
    cap_queue(connection, 6)
    for name in ("t", "u", "v"):
        insert(connection, 200, job_type=name)
    fleet = Fleet(database, seed=1)
    for number in range(8):
        fleet.start(_work, f"w{number}", types=["t", "u", "v"])
    fleet.start(_keep_up, "upkeep")
    most_seen: Counter[str] = Counter()
    until = time.monotonic() + 60
    while not fleet.stop.is_set() and time.monotonic() < until:
        running = Counter(
            row[0]
            for row in connection.execute("select job_type from rota.job where status = 'running'")
        )
        most_seen |= running + Counter(all=running.total())  # the greater count of each
        if connection.execute("select exists (select from rota.job)").fetchone() == (False,):
            break
    fleet.join()
    assert lines(connection) == []
    del most_seen["v"]  # it has no cap of its own
    assert most_seen == {**caps, "all": 6}


def _work(hand: Hand, chance: random.Random) -> None:
    jobs = hand.claim(chance.choice([1, 3, 20])).jobs
    if not jobs:
        time.sleep(0.002)
    if chance.random() < 0.02:
        return  # it dies with its jobs
    for job in jobs:
        transition = HAND_BACK if chance.random() < 0.05 else SUCCEED
        ending = ops.Ending(job, transition, 0.1, frees_place=True)
        hand.run((ops.leave if transition is HAND_BACK else ops.finish)([ending], "1"))


def _keep_up(hand: Hand, chance: random.Random) -> None:
    hand.reap()
    hand.run(ops.sweep_caps())
    time.sleep(0.1)
