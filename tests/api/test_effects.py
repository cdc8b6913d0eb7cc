"""`app.effects`: people look for effects and settle them, sync and async."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.errors import UsageError
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


class Sent(Exception):
    """Ends an attempt whose message may be on its way."""


class Shop(NamedTuple):
    """An App and its one type."""

    app: rota.App
    order: Any

    def place(self, *numbers: int, fails: bool = False) -> list[int]:
        """Enqueue orders and run them; their jobs."""
        jobs = [self.order.enqueue(number, fails).id for number in numbers]
        self.app.drain()
        return jobs


@pytest.fixture
def shop(app: rota.App) -> Shop:
    """An App with a handler that does two steps, sends one mail, and may not get an answer."""

    @app.job("order", takes_context=True, max_attempts=1)
    def order(ctx: rota.Context, number: int, fails: bool = False) -> None:
        ctx.step("reserve", lambda: f"place {number}")
        ctx.step("pack", lambda: None)
        with ctx.effect(f"mail:{number}") as effect:
            if not effect.done:
                effect.result = f"m-{number}"
                if fails:
                    raise Sent

    return Shop(app, order)


def known(found: list[rota.records.EffectRecord]) -> list[tuple[str, str]]:
    return [(effect.key, effect.status) for effect in found]


@rule("M52")
def test_effects_are_found_by_key_job_and_status(shop: Shop) -> None:
    [first] = shop.place(1)
    [second] = shop.place(2, fails=True)
    find = shop.app.effects.find
    steps = [("reserve", "done"), ("pack", "done")]
    uncertain = [("mail:2", "uncertain")]
    assert known(find()) == known(find(status="uncertain")) == uncertain
    assert find(status="intended") == find("no such") == find(job=9_999) == []
    assert known(find(status="done", limit=3)) == [*reversed(steps), ("mail:1", "done")]
    assert [effect.job for effect in find("reserve")] == [first, second]
    assert [effect.job for effect in find("reserve", limit=1)] == [second]
    assert known(find(job=first)) == [*steps, ("mail:1", "done")]
    assert known(find(job=second, status="done")) == steps
    assert known(find(job=second, limit=1)) == uncertain
    assert known(find("reserve", job=second)) == [("reserve", "done")]
    assert find("mail:1", job=second) == find("mail:2", status="done") == []
    [mail] = find("mail:1")
    assert (mail.step_of, mail.place, mail.if_uncertain, mail.result) == (None, None, "dead", "m-1")
    [step] = find("reserve", job=first)
    assert (step.step_of, step.place, step.result) == (first, 1, "place 1")


def test_a_search_and_a_settlement_of_what_cannot_be_are_refused(app: rota.App) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": ""}, "key"),
        ({"key": "k" * 256}, "key"),
        ({"key": 7}, "key"),
        ({"job": 0}, "id"),
        ({"status": "lost"}, "status must be one of intended, done, uncertain, not 'lost'"),
        ({"limit": 10_001}, "limit"),
        ({"limit": True}, "limit"),
        ({"key": "k", "about": {"to": "x"}}, "give about, or a key"),
    ]
    for given, said in wrong:
        with pytest.raises(UsageError, match=said):
            app.effects.find(**given)
    wrong = [
        ({"key": ""}, "key"),
        ({"done": 1}, "done must be True or False, not 1"),
        ({"done": None}, "done must be True or False, not None"),
        ({"done": False, "result": 1}, "a result is for an effect that is done"),
        ({"result": object()}, "the result cannot be stored: "),
        ({"result": "x" * 65_536}, "the result cannot be stored: larger than 65,536 bytes"),
        ({"job": 0}, "id"),
        ({"again": 1}, "again must be True or False, not 1"),
        ({"why": 7}, "why"),
        ({"by": 7}, "by"),
    ]
    for given, said in wrong:
        with pytest.raises(UsageError, match=said):
            app.effects.resolve(**{"key": "k", "done": True, **given})


@rule("M52")
def test_an_intent_that_did_not_happen_is_named_by_its_time_and_is_that_one_only(
    app: rota.App,
) -> None:
    calls: list[int] = []

    @app.job("mail", takes_context=True, max_attempts=1)
    def mail(ctx: rota.Context, not_done: str | None = None) -> None:
        with pytest.raises(UsageError, match="not_done must"):
            ctx.effect("mail:1", not_done=datetime(2026, 1, 1))  # noqa: DTZ001
        at = None if not_done is None else datetime.fromisoformat(not_done)
        with ctx.effect("mail:1", not_done=at) as effect:
            calls.append(len(calls))
            assert (effect.done, effect.uncertain) == (False, False)
            raise Sent

    mail.enqueue()
    app.drain()
    [first] = app.effects.find()
    for _ in range(2):
        mail.enqueue(first.intended_at.isoformat())
        app.drain()  # each is over before the next one begins
    assert calls == [0, 1]
    [second] = app.effects.find()
    assert (second.uncertain_before, second.intended_at > first.intended_at) == (0, True)


@rule("M70", "M45", "M87")
def test_what_effects_are_about_finds_them_until_it_is_forgotten(
    app: rota.App, connection: Connection
) -> None:
    @app.job("mail", takes_context=True, max_attempts=1)
    def mail(ctx: rota.Context, user: int, fails: bool = False) -> None:
        about = {"to": f"u{user % 2}@x.example", "user": user}
        with ctx.effect(f"mail:{user}", about=about) as effect:
            if not effect.done:
                effect.result = f"m-{user}"
                if fails:
                    raise Sent

    for user in (1, 2):
        mail.enqueue(user)
    mail.enqueue(3, fails=True)
    app.drain()
    find, odd = app.effects.find, {"to": "u1@x.example"}
    assert known(find(about=odd)) == [("mail:3", "uncertain"), ("mail:1", "done")]
    assert known(find(about=odd, status="done")) == [("mail:1", "done")]
    assert known(find(about={**odd, "user": 3}, limit=1)) == [("mail:3", "uncertain")]
    [first] = find("mail:1")
    assert (first.about, first.result) == ({**odd, "user": 1}, "m-1")

    assert app.effects.forget(odd, why="she asked", by="ann") == 2
    assert find(about=odd) == [] and len(find(about={"user": 2})) == 1
    [first] = find("mail:1")
    assert (first.status, first.about, first.result) == ("done", None, None)
    assert all(entry.what != "forget" for entry in app.jobs.timeline(1).entries)
    row = connection.execute("select verb, by, why, detail from rota.action").fetchone()
    assert row == ("forget", "ann", "she asked", {"effects": 2})


@rule("M70")
def test_what_effects_cannot_be_about_is_refused(app: rota.App) -> None:
    abouts: list[Any] = [{}, [], "to", {"to": object()}, {"to": float("nan")}]
    told: dict[int, str] = {}

    @app.job("mail", takes_context=True)
    def mail(ctx: rota.Context, at: int) -> None:
        try:
            ctx.effect("mail:1", about=abouts[at])
        except UsageError as error:
            told[at] = str(error)

    for at, about in enumerate(abouts):
        with pytest.raises(UsageError, match="about"):
            app.effects.forget(about)
        mail.enqueue(at)
    app.drain()
    assert sorted(told) == [1, 2, 3, 4], "an effect may be about nothing"


@rule("M70")
def test_what_an_effect_is_about_is_bounded_and_read_by_an_index(
    app: rota.App, connection: Connection
) -> None:
    @app.job("mail", takes_context=True, max_attempts=1)
    def mail(ctx: rota.Context, size: int) -> None:
        ctx.effect("mail:1", about={"to": "x" * size}).call(lambda: None)

    for size in (4096 - 9, 4096 - 8):
        mail.enqueue(size)
    summary = app.drain()
    assert (summary.succeeded, summary.dead) == (1, 1)
    connection.execute("analyze rota.effect")
    plan = 'explain select from rota.effects where about @> \'{"to": "x"}\''
    connection.execute("set enable_seqscan = off")
    assert "effect_about" in str(connection.execute(plan).fetchall())
