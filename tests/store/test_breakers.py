"""Breakers at the store: who tries, what closes them, what is written, and what a person changes.

What opens and closes one for how long is in `test_breaker_machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

import rota
from rota.model.breaker import BreakerRules, EndpointHealth, format_waits_for
from rota.model.job import Job
from rota.store import ops
from tests.store.work import Hand, insert, waits
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]
RULES = BreakerRules("mail", failures=3, within_s=60, open_for_s=30, max_open_s=100)


@pytest.fixture
def hand(connection: Connection) -> Hand:
    """A worker's statements, on the test's connection."""
    return Hand(connection)


def fail(hand: Hand, count: int = 1, key: str = "") -> ops.Recorded:
    """Record failures of attempts that began just now."""
    result = ops.EndpointResult(RULES, key, [0.0] * count, "no answer")
    [recorded] = hand.run(ops.record_at_breakers([result]))
    return recorded


def end_trial(hand: Hand, job: Job, health: EndpointHealth) -> str | None:
    """Record the end of a trial; return what changed."""
    result = ops.EndpointResult(RULES, "", [], "no answer", health, job.id, job.claims)
    [recorded] = hand.run(ops.record_at_breakers([result]))
    return recorded.change


def try_one(hand: Hand, job: Job) -> ops.Blocked | bool:
    """Ask whether a job may begin."""
    return hand.run(ops.try_breakers([ops.Try("mail", "", job.id, job.claims, 60.0)]))[job.id]


def look(hand: Hand, key: str = "") -> str:
    """Return the state that a worker sees."""
    blocked = hand.run(ops.look_at_breakers([("mail", key)])).get(("mail", key))
    return "closed" if blocked is None else blocked.state


def let_window_pass(connection: Connection) -> None:
    """Let the time of all open breakers be over."""
    connection.execute("update rota.breaker set open_until = rota.clock() where state = 'open'")


def hand_back(hand: Hand, *jobs: Job, delay_s: float = 1_000.0) -> None:
    """Put claimed jobs back, as a worker does."""
    outcomes = [
        {
            "id": job.id, "claims": job.claims, "status": "queued", "charged": False,
            "delay_s": delay_s, "waits_for": format_waits_for("mail", ""),
        }
        for job in jobs
    ]  # fmt: skip
    hand.connection.execute("select rota.job_leave(%s::jsonb, '1'::text)", [Jsonb(outcomes)])


def claim(hand: Hand, count: int = 1) -> list[Job]:
    """Claim so many new jobs."""
    insert(hand.connection, count)
    return hand.claim(count).jobs


@rule("M63")
def test_keys_are_breakers_of_their_own_and_what_changes_nothing_writes_nothing(
    connection: Connection, hand: Hand
) -> None:
    [job] = claim(hand)
    assert (look(hand), try_one(hand, job)) == ("closed", False)
    assert connection.execute("select count(*) from rota.breaker").fetchone() == (0,)
    opened = fail(hand, 3, key="a")
    assert opened.change == "opened" and opened.blocked is not None
    assert 29 < (opened.blocked.wait_s or 0) <= 30
    assert (look(hand, "a"), look(hand, "b"), look(hand)) == ("open", "closed", "closed")
    before = connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall()
    assert fail(hand, 10, key="a").change is None
    assert connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall() == before


# The trial


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
        assert isinstance(answer.result(60), ops.Blocked)


@rule("M63")
def test_each_trial_that_fails_doubles_the_wait_up_to_the_longest(
    connection: Connection, hand: Hand
) -> None:
    rules = BreakerRules("mail", failures=3, within_s=60, open_for_s=10, max_open_s=100)
    fail(hand, 3)
    for wait_s in (20, 40, 80, 100, 100):
        let_window_pass(connection)
        [job] = claim(hand)
        assert try_one(hand, job) is True
        failed = EndpointHealth.FAILS
        result = ops.EndpointResult(rules, "", [], "no answer", failed, job.id, job.claims)
        [reopened] = hand.run(ops.record_at_breakers([result]))
        assert (reopened.change, reopened.blocked is not None) == ("reopened", True)
        left = "select extract(epoch from open_until - changed_at)::int from rota.breaker"
        assert connection.execute(left).fetchone() == (wait_s,)


@rule("M63")
def test_a_success_of_the_trial_releases_the_jobs_that_wait_in_their_order(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    waiting = claim(hand, 5)
    hand_back(hand, *waiting)
    let_window_pass(connection)
    job, late = claim(hand, 2)
    assert try_one(hand, job) is True
    assert end_trial(hand, job, EndpointHealth.SERVES) == "closed"
    assert [hand.run(ops.release_breakers(2, batch / 10)) for batch in range(4)] == [2, 2, 1, 0]
    rows = connection.execute(
        "select id, run_at < rota.clock() + interval '1 s', waits_for from rota.job"
        " where status = 'queued' order by run_at"
    ).fetchall()
    assert rows == [(one.id, True, None) for one in waiting]
    hand_back(hand, late)  # its worker had looked before the breaker closed
    assert hand.run(ops.release_breakers(10, 0.0)) == 1


@rule("M63")
def test_a_trial_that_says_nothing_of_the_endpoint_calls_another_job_back_to_try(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    waiting = claim(hand, 2)
    hand_back(hand, *waiting)
    let_window_pass(connection)
    [job] = claim(hand)
    assert try_one(hand, job) is True
    assert end_trial(hand, job, EndpointHealth.UNKNOWN) == "untried"
    due = "select id from rota.job where status = 'queued' and run_at <= rota.clock()"
    assert connection.execute(due).fetchall() == [(waiting[0].id,)]


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
    assert end_trial(hand, early, EndpointHealth.SERVES) is None
    assert look(hand) == "trial"


# Upkeep


@rule("M13", "M63")
def test_upkeep_forgets_breakers_whose_failures_count_no_longer(
    connection: Connection, hand: Hand
) -> None:
    for key, count in (("counts", 1), ("old", 1), ("open", 3), ("untried", 3), ("lost", 3)):
        fail(hand, count, key=key)
    connection.execute("update rota.breaker set state = 'trial', trial_job = 1 where key = 'lost'")
    connection.execute("update rota.breaker set forget_at = rota.clock() where key = 'old'")
    connection.execute(
        "update rota.breaker set open_until = rota.clock() - interval '2 d' "
        "where key in ('untried', 'lost')"
    )
    assert hand.run(ops.forget_rows("breakers", 10)) == 3
    kept = connection.execute("select key from rota.breaker order by key").fetchall()
    assert kept == [("counts",), ("open",)]


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
        assert answer.result(60).change is None
    assert connection.execute("select cardinality(failed_at) from rota.breaker").fetchone() == (1,)


# By hand


@rule("M63", "M87")
def test_a_person_trips_and_resets_a_breaker(
    app: rota.App, connection: Connection, hand: Hand
) -> None:
    app.job("mail", breaker=rota.Breaker())(lambda: None)
    app.sync()
    app.breakers.trip("mail", duration="10m", why="the provider asked us", by="ada")
    [seen] = app.breakers.list()
    assert (seen.state, seen.key, seen.changed_by) == ("open", None, "ada")
    assert seen.reason == "the provider asked us"
    waiting = claim(hand, 3)
    assert isinstance(try_one(hand, waiting[0]), ops.Blocked)
    hand_back(hand, *waiting)
    assert app.breakers.list()[0].waiting == 3
    assert app.breakers.reset("mail", why="it works", by="bob") == 1
    assert app.breakers.reset("mail") == 0
    assert [one.state for one in app.breakers.list()] == ["closed"]
    assert len(hand.claim(3).jobs) == 3
    log = connection.execute(
        "select verb, by, why, detail->>'breaker' from rota.action order by id"
    )
    assert log.fetchall() == [
        ("breaker_trip", "ada", "the provider asked us", "mail"),
        ("breaker_reset", "bob", "it works", "mail"),
    ]


@rule("M63")
def test_a_whole_breaker_that_is_tripped_holds_up_all_keys_and_then_none(
    app: rota.App, connection: Connection, hand: Hand
) -> None:
    app.job("mail", breaker=rota.Breaker(key=lambda host: host))(lambda host: None)
    app.sync()
    fail(hand, 3, key="b")
    app.breakers.trip("mail")
    seen = hand.run(ops.look_at_breakers([("mail", "a")]))
    assert seen["mail", "a"] == ops.Blocked("", "open", None), "until a person resets it"
    app.breakers.trip("mail", duration="10m")
    let_window_pass(connection)
    assert (look(hand, "a"), look(hand, "b")) == ("closed", "due")
    hand.run(ops.release_breakers(10, 0.0))
    assert [(one.key, one.state) for one in app.breakers.list()] == [("b", "open")]
    assert app.breakers.reset("mail") == 1


@rule("M63")
def test_a_person_names_a_breaker_and_a_key_as_code_does(
    app: rota.App, connection: Connection
) -> None:
    app.job("mail", breaker=rota.Breaker("smtp"))(lambda: None)
    app.job("call", breaker=rota.Breaker("host", key=lambda host: host))(lambda host: None)
    app.sync()
    for key in (7, UUID("8f14e45f-ceea-467f-a8b1-0c7f5c0e2d11"), "api.example"):
        app.breakers.trip("host", key)
        assert app.breakers.list()[0].key == str(key)
        assert app.breakers.reset("host", key) == 1
    changes: tuple[Callable[..., object], ...] = (app.breakers.trip, app.breakers.reset)
    for change in changes:
        with pytest.raises(rota.UsageError, match=r"no job type declares the breaker 'smpt'.*smtp"):
            change("smpt")
        with pytest.raises(rota.UsageError, match="the breaker 'smtp' has no keys"):
            change("smtp", "a")
    # From before its keys went.
    connection.execute("insert into rota.breaker (name, key, state) values ('smtp', 'a', 'open')")
    assert app.breakers.reset("smtp", "a") == 1
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("insert into rota.breaker (name, key) values ('the shop', '')")


@rule("M63")
def test_a_result_of_a_trial_that_a_person_reset_counts_no_more(
    app: rota.App, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    [job] = claim(hand)
    try_one(hand, job)
    app.breakers.reset("mail")
    assert end_trial(hand, job, EndpointHealth.FAILS) is None
    assert look(hand) == "closed"
