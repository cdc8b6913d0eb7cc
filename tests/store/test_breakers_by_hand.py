"""Breakers that a person trips and resets, and names that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest

import rota
from rota.declare.key import PlainKey
from rota.model.breaker import EndpointHealth
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
from tests.store.work import Hand
from tests.support.rules import rule


@pytest.fixture
def hand(connection: Connection) -> Hand:
    """A worker's statements, on the test's connection."""
    return Hand(connection)


@rule("M63", "M87")
def test_a_person_trips_and_resets_a_breaker(app: rota.App, connection: Connection) -> None:
    @app.job("mail", breaker=rota.Breaker())
    def mail() -> None: ...

    app.sync()
    hand = Hand(connection)
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
    @app.job("mail", breaker=rota.Breaker(key=lambda host: host))
    def mail(host: str) -> None: ...

    app.sync()
    fail(hand, 3, key="b")
    app.breakers.trip("mail", duration="10m")
    assert hand.run(ops.look_at_breakers([("mail", "a")]))["mail", "a"].blocked_by == ""
    let_window_pass(connection)
    assert (look(hand, "a"), look(hand, "b")) == ("closed", "due")
    hand.run(ops.release_breakers(10, 0.0))
    assert [(one.key, one.state) for one in app.breakers.list()] == [("b", "open")]
    assert app.breakers.reset("mail") == 1


@rule("M63")
@pytest.mark.parametrize("key", [7, UUID("8f14e45f-ceea-467f-a8b1-0c7f5c0e2d11"), "api.example"])
def test_a_person_names_a_key_as_its_function_makes_it(app: rota.App, key: PlainKey) -> None:
    @app.job("call", breaker=rota.Breaker(key=lambda customer: customer))
    def call(customer: str) -> None: ...

    app.sync()
    app.breakers.trip("call", key)
    assert app.breakers.list()[0].key == str(key)
    assert app.breakers.reset("call", key) == 1
    with pytest.raises(rota.UsageError, match="duration must be a timedelta or a string"):
        app.breakers.trip("call", key, duration=60)  # type: ignore[arg-type]


@rule("M63")
def test_a_trip_without_a_time_lasts_until_the_reset(app: rota.App, hand: Hand) -> None:
    @app.job("mail", breaker=rota.Breaker())
    def mail() -> None: ...

    app.sync()
    app.breakers.trip("mail")
    assert hand.run(ops.look_at_breakers([("mail", "")])) == {
        ("mail", ""): ops.Blocked("", "open", None)
    }


@rule("M63")
@pytest.mark.parametrize("change", ["trip", "reset"])
def test_a_name_that_no_job_type_declares_is_refused_with_those_that_there_are(
    app: rota.App, change: str
) -> None:
    @app.job("mail", breaker=rota.Breaker("smtp"))
    def mail() -> None: ...

    app.sync()
    call: Callable[[str], object] = getattr(app.breakers, change)
    with pytest.raises(rota.UsageError, match=r"no job type declares the breaker 'smpt'.*smtp"):
        call("smpt")


@rule("M63")
@pytest.mark.parametrize("change", ["trip", "reset"])
def test_a_key_of_a_breaker_without_keys_is_refused(app: rota.App, change: str) -> None:
    @app.job("mail", breaker=rota.Breaker("smtp"))
    def mail() -> None: ...

    @app.job("hook", breaker=rota.Breaker("host", key=lambda host: host))
    def hook(host: str) -> None: ...

    app.sync()
    call: Callable[[str, str], object] = getattr(app.breakers, change)
    with pytest.raises(rota.UsageError, match="the breaker 'smtp' has no keys"):
        call("smtp", "partner.example")
    call("host", "partner.example")


@rule("M63")
def test_a_key_from_before_the_keys_went_can_be_reset(
    app: rota.App, connection: Connection
) -> None:
    @app.job("mail", breaker=rota.Breaker("smtp"))
    def mail() -> None: ...

    app.sync()
    connection.execute("insert into rota.breaker (name, key, state) values ('smtp', 'a', 'open')")
    assert app.breakers.reset("smtp", "a") == 1


@rule("M63")
def test_the_tables_refuse_a_breaker_with_blanks_in_its_name(connection: Connection) -> None:
    for refused in (
        "insert into rota.breaker (name, key) values ('the shop', '')",
        "insert into rota.job_type (name, breaker) values ('mail', 'the shop')",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(refused.encode())


@rule("M63")
def test_a_result_of_a_trial_that_a_person_reset_counts_no_more(
    app: rota.App, connection: Connection, hand: Hand
) -> None:
    fail(hand, 3)
    let_window_pass(connection)
    [job] = claim(hand)
    try_one(hand, job)
    app.breakers.reset("mail")
    assert end_trial(hand, job, EndpointHealth.FAILS).change is None
    assert look(hand) == "closed"
