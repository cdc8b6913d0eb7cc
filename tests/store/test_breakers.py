"""Breakers at the store: what opens them, who tries, what closes them, what is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from rota.model.breaker import EndpointHealth
from rota.model.job import Job, Status
from rota.store import ops
from tests.store.breakers import (
    Connection,
    claim,
    end_trial,
    fail,
    hand_back,
    let_window_pass,
    look,
    try_one,
)
from tests.store.work import BEGINNING, Hand, expire, waits
from tests.support.rules import rule
from tests.support.wait import eventually


@pytest.fixture
def hand(connection: Connection) -> Hand:
    """A worker's statements, on the test's connection."""
    return Hand(connection)


# Opening


@rule("M63")
def test_a_breaker_opens_after_so_many_failures_within_its_time(hand: Hand) -> None:
    assert fail(hand, 2) == ops.Recorded(("mail", ""), None, None)
    opened = fail(hand)
    assert opened.change == "opened"
    assert opened.blocked is not None
    assert opened.blocked.state == "open"
    assert 29 < (opened.blocked.wait_s or 0) <= 30
    assert look(hand) == "open"


@rule("M63")
def test_failures_count_in_any_stretch_of_the_time_and_not_from_a_fixed_start(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 1)
    connection.execute("update rota.breaker set failed_at = array[rota.clock() - interval '50 s']")
    fail(hand, 1)
    connection.execute(
        "update rota.breaker set failed_at = array(select at - interval '11 s'"
        " from unnest(failed_at) at)"
    )
    assert fail(hand, 1).change is None  # the first is 61 s old
    assert fail(hand, 1).change == "opened"  # the second to the fourth lie within 11 s


@rule("M63")
def test_keys_are_breakers_of_their_own(hand: Hand) -> None:
    assert fail(hand, 3, key="a").change == "opened"
    assert (look(hand, "a"), look(hand, "b"), look(hand)) == ("open", "closed", "closed")


@rule("M63")
def test_results_while_it_is_open_change_and_write_nothing(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    before = connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall()
    assert fail(hand, 10).change is None
    hand.run(ops.look_at_breakers([("mail", "")]))
    assert connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall() == before


@rule("M63")
def test_a_look_at_a_closed_breaker_writes_no_row(connection: Connection, hand: Hand) -> None:
    [job] = claim(hand)
    assert look(hand) == "closed"
    assert try_one(hand, job) is False
    assert connection.execute("select count(*) from rota.breaker").fetchone() == (0,)


# The trial


@rule("M63")
def test_of_24_connections_at_the_end_of_the_window_one_gets_the_trial(
    database: str, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    jobs = claim(hand, 24)
    barrier = Barrier(24)

    def race(job: Job) -> ops.Blocked | bool:
        with psycopg.connect(database, autocommit=True) as own:
            mine = Hand(own)
            look(mine)
            barrier.wait()
            return try_one(mine, job)

    with ThreadPoolExecutor(24) as threads:
        for turn in range(5):
            let_window_pass(connection)
            answers = list(threads.map(race, jobs))
            won = [job for job, answer in zip(jobs, answers, strict=True) if answer is True]
            assert len(won) == 1, f"turn {turn}: {answers}"
            others = [answer for answer in answers if isinstance(answer, ops.Blocked)]
            assert {(one.state, len(others)) for one in others} == {("trial", 23)}
            assert end_trial(hand, won[0], EndpointHealth.FAILS).change == "reopened"


@rule("M63")
def test_who_waited_for_the_row_does_not_get_a_second_trial(
    database: str, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    first, second = claim(hand, 2)
    with (
        psycopg.connect(database) as early,
        psycopg.connect(database, autocommit=True) as late,
        ThreadPoolExecutor(1) as threads,
    ):
        assert try_one(Hand(early), first) is True
        answer = threads.submit(try_one, Hand(late), second)
        eventually(waits(connection, late))
        early.commit()
        assert isinstance(answer.result(10), ops.Blocked)


@rule("M63")
def test_each_trial_that_fails_doubles_the_wait_up_to_the_longest(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    for wait_s in (60, 100, 100):
        let_window_pass(connection)
        [job] = claim(hand)
        assert try_one(hand, job) is True
        reopened = end_trial(hand, job, EndpointHealth.FAILS)
        assert reopened.change == "reopened"
        assert reopened.blocked is not None
        assert reopened.blocked.wait_s == pytest.approx(wait_s, abs=1)


@rule("M63")
def test_a_success_of_the_trial_closes_it_and_releases_the_jobs_that_wait_in_their_order(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    waiting = claim(hand, 5)
    hand_back(hand, *waiting)
    let_window_pass(connection)
    [job] = claim(hand)
    assert try_one(hand, job) is True
    assert end_trial(hand, job, EndpointHealth.SERVES) == ops.Recorded(("mail", ""), None, "closed")
    assert [hand.run(ops.release_breakers(2, batch / 10)) for batch in range(4)] == [2, 2, 1, 0]
    rows = connection.execute(
        "select id, run_at < rota.clock() + interval '1 s', waits_for from rota.job"
        " where status = 'queued' order by run_at"
    ).fetchall()
    assert rows == [(one.id, True, None) for one in waiting]
    assert look(hand) == "closed"


@rule("M63")
def test_a_trial_that_says_nothing_of_the_endpoint_lets_another_try_at_once(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    waiting = claim(hand, 2)
    hand_back(hand, *waiting)
    let_window_pass(connection)
    first, second = claim(hand, 2)
    assert try_one(hand, first) is True
    assert end_trial(hand, first, EndpointHealth.UNKNOWN).change == "untried"
    due = connection.execute(
        "select id from rota.job where status = 'queued' and run_at <= rota.clock()"
    ).fetchall()
    assert due == [(waiting[0].id,)]
    assert try_one(hand, second) is True
    reopened = end_trial(hand, second, EndpointHealth.FAILS).blocked
    assert reopened is not None
    assert reopened.wait_s == pytest.approx(60, abs=1)  # not four times


@rule("M63")
def test_a_trial_whose_worker_is_lost_gives_way_once_its_job_is_taken_away(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    first, second = claim(hand, 2)
    assert try_one(hand, first) is True
    assert look(hand) == "trial"
    expire(connection)
    hand.renew(second)
    hand.reap()
    assert look(hand) == "due"
    assert try_one(hand, second) is True
    assert end_trial(hand, first, EndpointHealth.SERVES).change is None  # it is late
    assert look(hand) == "trial"


@rule("M63")
def test_a_trial_gives_way_after_its_deadline(connection: Connection, hand: Hand) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    first, second = claim(hand, 2)
    assert try_one(hand, first, deadline_s=0.0) is True
    assert try_one(hand, second) is True
    assert end_trial(hand, first, EndpointHealth.FAILS).change is None


@rule("M63")
def test_a_late_end_of_an_earlier_claim_of_the_trials_job_changes_nothing(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    [early] = claim(hand)
    hand_back(hand, early, delay_s=0.0)
    [job] = hand.claim(1).jobs
    assert (job.id, job.claims > early.claims) == (early.id, True)
    assert try_one(hand, job) is True
    assert end_trial(hand, early, EndpointHealth.SERVES).change is None
    assert look(hand) == "trial"


@rule("M63")
def test_jobs_that_are_handed_back_just_after_it_closed_are_released_too(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    job, late = claim(hand, 2)
    try_one(hand, job)
    end_trial(hand, job, EndpointHealth.SERVES)
    assert hand.run(ops.release_breakers(10, 0.0)) == 0
    hand_back(hand, late)
    assert hand.run(ops.release_breakers(10, 0.0)) == 1


@rule("M63")
def test_failures_of_attempts_that_began_before_it_closed_do_not_open_it_again(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    [job] = claim(hand)
    try_one(hand, job)
    end_trial(hand, job, EndpointHealth.SERVES)
    assert fail(hand, 10, ago_s=20.0).change is None
    assert fail(hand, 3).change == "opened"


# Upkeep


@rule("M13", "M63")
def test_upkeep_forgets_breakers_whose_failures_count_no_longer(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 1, key="counts")
    fail(hand, 1, key="old")
    fail(hand, 3, key="open")
    fail(hand, 3, key="untried")
    fail(hand, 3, key="lost")
    connection.execute("update rota.breaker set state = 'trial', trial_job = 1 where key = 'lost'")
    connection.execute("update rota.breaker set forget_at = rota.clock() where key = 'old'")
    connection.execute(
        "update rota.breaker set open_until = rota.clock() - interval '2 d' "
        "where key in ('untried', 'lost')"
    )
    assert hand.run(ops.forget_rows("breakers", 10)) == 3
    assert connection.execute("select key from rota.breaker order by key").fetchall() == [
        ("counts",), ("open",)
    ]  # fmt: skip


@rule("M13", "M63")
def test_a_failure_counts_though_upkeep_deletes_its_row_at_that_moment(
    database: str, connection: Connection, hand: Hand
) -> None:
    fail(hand, 1)
    connection.execute("update rota.breaker set forget_at = rota.clock()")
    with (
        psycopg.connect(database) as upkeep,
        psycopg.connect(database, autocommit=True) as worker,
        ThreadPoolExecutor(1) as threads,
    ):
        upkeep.execute("select from rota.breaker for update")
        answer = threads.submit(fail, Hand(worker), 1)
        eventually(waits(connection, worker))
        assert Hand(upkeep).run(ops.forget_rows("breakers", 10)) == 1
        upkeep.commit()
        assert answer.result(10).change is None
    assert connection.execute("select cardinality(failed_at) from rota.breaker").fetchone() == (1,)


@rule("M63")
def test_a_job_that_waits_for_a_breaker_still_expires(connection: Connection, hand: Hand) -> None:
    [job] = claim(hand)
    hand_back(hand, job)
    connection.execute("update rota.job set expires_at = rota.clock()")
    _, expired, _ = hand.run(ops.expire("w", BEGINNING, 0, 10))
    assert [(one.job, one.status) for one in expired] == [(job.id, Status.DEAD)]
    assert "breaker mail" in expired[0].message


def test_a_hand_back_is_not_charged(connection: Connection, hand: Hand) -> None:
    [job] = claim(hand)
    hand_back(hand, job)
    assert connection.execute("select attempts, waits_for from rota.job").fetchone() == (
        0, "breaker mail"
    )  # fmt: skip
