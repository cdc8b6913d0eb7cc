"""Breakers at the store: who tries, what closes them, what is written, and what a person changes.

What opens and closes one for how long is in `test_breaker_machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import rota
from rota.model.breaker import BreakerRules, EndpointHealth
from rota.model.job import Job
from rota.store import ops
from tests.store.work import HAND_BACK, Connection, Hand, insert, make_branches, waits
from tests.support.rules import rule
from tests.support.wait import eventually

RULES = BreakerRules("mail", failures=3, within_s=60, open_for_s=30, max_open_s=100)


@pytest.fixture
def hand(connection: Connection) -> Hand:
    """A worker's statements, on the test's connection; its jobs have the breaker."""
    connection.execute("insert into rota.job_type (name, breaker) values ('t', 'mail')")
    return Hand(connection)


def fail(hand: Hand, count: int = 1, key: str = "") -> ops.Recorded:
    return hand.record(ops.EndpointResult(RULES, key, [0.0] * count, "no answer"))


def end_trial(hand: Hand, job: Job, health: EndpointHealth) -> str | None:
    """Record the end of a trial; return what changed."""
    result = ops.EndpointResult(RULES, "", [], "no answer", health, job.id, job.claims)
    return hand.record(result).change


def state(hand: Hand, key: str = "") -> str:
    """Return the state that a claim sees."""
    asked = "select state from rota.breaker_state('mail', %s)"
    row = hand.connection.execute(asked, [key]).fetchone()
    return row[0] if row else "closed"


def let_window_pass(connection: Connection) -> None:
    connection.execute("update rota.breaker set open_until = rota.clock() where state = 'open'")


def claim(hand: Hand, count: int = 1) -> list[Job]:
    """Enqueue so many jobs, and claim what may run."""
    insert(hand.connection, count)
    return hand.claim(count).jobs


def begin_trial(hand: Hand) -> Job:
    """Claim a new job as the trial."""
    let_window_pass(hand.connection)
    insert(hand.connection)
    claimed = hand.claim(1)
    [job] = claimed.jobs
    assert claimed.starts[job.id].is_trial
    return job


def list_waiting(connection: Connection) -> list[tuple[int, bool]]:
    return connection.execute(
        "select id, run_at <= rota.clock() from rota.job "
        "where waits_for = 'breaker mail' and status = 'queued' order by run_at, id"
    ).fetchall()


@rule("M63")
def test_keys_are_breakers_of_their_own_and_what_changes_nothing_writes_nothing(
    connection: Connection, hand: Hand
) -> None:
    [_] = claim(hand)
    assert connection.execute("select count(*) from rota.breaker").fetchone() == (0,)
    opened = fail(hand, 3, key="a")
    assert opened.change == "opened"
    assert 29 < (opened.wait_s or 0) <= 30
    assert (state(hand, "a"), state(hand, "b"), state(hand)) == ("open", "closed", "closed")
    before = connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall()
    assert fail(hand, 10, key="a").change is None
    assert connection.execute("select xmin, ctid, xmax, * from rota.breaker").fetchall() == before


@rule("M63")
def test_a_claim_puts_off_the_jobs_of_an_open_breaker_and_those_behind_them(
    app: rota.App, connection: Connection
) -> None:
    app.job("t", breaker=rota.Breaker("mail", key=lambda host: host))(lambda host: None)
    app.sync()
    hand = Hand(connection, types=("t", "plain"))
    for key in ("a", "c"):
        fail(hand, 3, key=key)
    insert(connection, 40, payload=Jsonb({"host": "a"}))
    insert(connection, 10, payload=Jsonb({"host": "c"}))
    others = insert(connection, 1, payload=Jsonb({"host": "b"})) + insert(
        connection, job_type="plain"
    )
    claimed = hand.claim(2)
    assert claimed.jobs == [] and claimed.held_up[0].count == 2
    assert [job.id for job in hand.claim(10).jobs] == others
    put_off = connection.execute(
        "select count(*), min(run_at) = open_until, "
        "max(run_at) < rota.clock() + interval '40 s' from rota.job "
        "join rota.breaker on waits_for = 'breaker mail ' || key group by key, open_until"
    )
    assert sorted(put_off) == [(10, True, True), (40, True, True)]


# The trial


@rule("M63")
def test_while_a_claim_decides_on_the_trial_no_other_lets_one_try(
    database: str, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    insert(connection)
    connection.execute("set lock_timeout = '2s'")
    with psycopg.connect(database) as early:
        [_] = Hand(early).claim(1).jobs
        assert claim(hand) == []
    connection.execute("update rota.job set run_at = rota.clock() where status = 'queued'")
    assert (hand.claim(1).jobs, state(hand)) == ([], "trial")


@rule("M63")
def test_a_success_of_the_trial_releases_the_jobs_that_wait_in_their_order(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    waiting = insert(connection, 1_005)
    assert hand.claim(5).jobs == []
    job = begin_trial(hand)
    assert claim(hand) == []
    assert end_trial(hand, job, EndpointHealth.SERVES) == "closed"
    due = "select id from rota.job where status = 'queued' and waits_for is null order by run_at"
    assert [id_ for (id_,) in connection.execute(due)] == waiting[:1_000]
    assert hand.run(ops.sweep_rooms("", 10)).released == 6


@rule("M63")
def test_a_job_does_not_wait_though_its_claim_looked_long_before_the_breaker_closed(
    database: str, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    [job] = insert(connection)
    with psycopg.connect(database) as early:
        assert Hand(early).claim(1).jobs == []
        connection.execute("select rota.breaker_reset('mail')")
        assert hand.run(ops.sweep_rooms("", 10)).released == 0
    assert list_waiting(connection) == [(job, False)]
    assert hand.run(ops.sweep_rooms("", 10)).released == 1


@rule("M63", "M32")
def test_a_breaker_that_cannot_be_written_keeps_back_no_claim_and_no_outcome(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    trial = begin_trial(hand)
    connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'not now'; end $$; create trigger refuse before update on rota.breaker "
        "for each row execute function refuse()"
    )
    connection.execute("select rota.succeed(%s, %s)", [trial.id, trial.claims])
    assert state(hand) == "due"
    [job] = insert(connection)
    insert(connection, job_type="plain")
    assert len(Hand(connection, types=("t", "plain")).claim(2).jobs) == 1
    assert list_waiting(connection) == [(job, False)]


@rule("M61", "M62", "M63")
@pytest.mark.parametrize("by", [{"max_running": 1}, {"rate_limit": rota.RateLimit("x", 1, "1h")}])
def test_a_trial_that_a_cap_or_a_limit_refuses_lets_another_job_try(
    app: rota.App, connection: Connection, by: dict[str, Any]
) -> None:
    app.job("capped", breaker=rota.Breaker("mail"), **by)(lambda: None)
    app.job("t", breaker=rota.Breaker("mail"))(lambda: None)
    app.sync()
    hand = Hand(connection, types=("capped", "t"))
    insert(connection, job_type="capped")
    assert len(hand.claim(1).jobs) == 1
    fail(hand, 3)
    let_window_pass(connection)
    insert(connection, job_type="capped")
    [job] = insert(connection)
    assert hand.claim(2).jobs == []
    soon = "update rota.job set run_at = rota.clock() where run_at < rota.clock() + interval '1 s'"
    connection.execute(soon)
    assert [claimed.id for claimed in hand.claim(2).jobs] == [job]


@rule("M60", "M63")
def test_the_next_job_of_a_lane_is_not_passed_to_a_worker_while_its_breaker_is_open(
    connection: Connection, hand: Hand
) -> None:
    insert(connection, 2, group_key="g")
    [job] = hand.claim(2).jobs
    fail(hand, 3)
    ended = hand.run(
        ops.finish_and_pass([(job.id, job.claims, 0.1)], hand.who, make_branches("default"))
    )
    assert ended is not None and ended[1].jobs == []


@rule("M63")
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_trial_that_says_nothing_of_the_endpoint_lets_another_job_try(
    connection: Connection, hand: Hand, is_lost: bool
) -> None:
    fail(hand, 3)
    waiting = insert(connection, 2)
    assert hand.claim(2).jobs == []
    job = begin_trial(hand)
    if is_lost:
        connection.execute("delete from rota.job where id = %s", [job.id])
    else:
        assert end_trial(hand, job, EndpointHealth.UNKNOWN) == "untried"
        assert list_waiting(connection) == [(waiting[0], True), (waiting[1], False)]
    assert state(hand) == "due"


@rule("M63")
def test_a_late_end_of_an_earlier_claim_of_the_trials_job_changes_nothing(
    connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    early = begin_trial(hand)
    hand.settle((early, HAND_BACK))
    let_window_pass(connection)
    [job] = hand.claim(1).jobs
    assert (job.id, job.claims > early.claims) == (early.id, True)
    assert end_trial(hand, early, EndpointHealth.SERVES) is None
    assert state(hand) == "trial"


@rule("M63", "M15")
@pytest.mark.parametrize(("ends", "becomes"), [("succeed", "closed"), ("fail", "open")])
def test_a_program_that_runs_sql_obeys_a_breaker_and_ends_its_trial(
    connection: Connection, hand: Hand, ends: str, becomes: str
) -> None:
    fail(hand, 3)
    insert(connection, 2)
    asked = "select id, claims from rota.claim('default', '{t}', 'sql')"
    assert connection.execute(asked).fetchall() == []
    let_window_pass(connection)
    connection.execute("update rota.job set run_at = rota.clock()")
    [(job, claims)] = connection.execute(asked).fetchall()
    assert connection.execute(asked).fetchall() == []
    why = ", 'Timeout'" if ends == "fail" else ""
    connection.execute(f"select rota.{ends}({job}, {claims}{why})".encode())
    assert state(hand) == becomes


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
        "update rota.breaker set open_until = rota.clock() - interval '2 d', "
        "changed_at = rota.clock() - interval '2 d' where key in ('untried', 'lost')"
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
    app.job("t", breaker=rota.Breaker("mail"))(lambda: None)
    app.sync()
    app.breakers.trip("mail", duration="10m", why="the provider asked us", by="ada")
    [seen] = app.breakers.list()
    assert (seen.state, seen.key, seen.changed_by) == ("open", None, "ada")
    assert seen.reason == "the provider asked us"
    assert claim(hand, 3) == []
    assert app.breakers.list()[0].waiting == 3
    assert app.breakers.reset("mail", why="it works", by="bob") == 1
    assert app.breakers.reset("mail") == 0
    assert [breaker.state for breaker in app.breakers.list()] == ["closed"]
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
    app.job("t", breaker=rota.Breaker("mail", key=lambda host: host))(lambda host: None)
    app.sync()
    fail(hand, 3, key="b")
    app.breakers.trip("mail")
    job = insert(connection, payload=Jsonb({"host": "a"}))
    assert hand.claim(1).jobs == [], "until a person resets it"
    assert list_waiting(connection) == [(job[0], False)]
    app.breakers.trip("mail", duration="10m")
    let_window_pass(connection)
    insert(connection, payload=Jsonb({"host": "a"}))
    assert len(hand.claim(1).jobs) == 1
    assert hand.run(ops.sweep_rooms("", 10)).released == 1
    assert [(breaker.key, breaker.state) for breaker in app.breakers.list()] == [("b", "open")]
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
    job = begin_trial(hand)
    app.breakers.reset("mail")
    assert end_trial(hand, job, EndpointHealth.FAILS) is None
    assert state(hand) == "closed"
