"""`rota effects`, `rota effects resolve` and what else the commands show of effects and steps."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.cli.here import Here
from tests.support.rules import rule

SHOP = """
import rota

app = rota.App()


@app.job("order", takes_context=True, max_attempts=1)
def order(ctx: rota.Context, number: int) -> None:
    ctx.step("reserve", lambda: f"place {number}")
    with ctx.effect(f"mail:{number}", if_uncertain="dead") as effect:
        if not effect.done:
            raise TimeoutError
"""


@pytest.fixture
def rota(shop: Path, database: str) -> Here:
    """`rota`, and an order of which nobody knows whether its mail was sent."""
    (shop / "shop.py").write_text(SHOP)
    rota = Here(shop, ROTA_DATABASE_URL=database)
    rota.ok("enqueue", "order", "--payload", '{"number": 5}')
    rota.ok("work", "--drain")
    return rota


def find(rota: Here, *arguments: str) -> list[tuple[str, str]]:
    found = rota.ok("effects", *arguments, "--json").json["effects"]
    return [(effect["key"], effect["status"]) for effect in found]


@rule("M52", "M87")
def test_a_person_finds_an_uncertain_effect_and_settles_it(rota: Here) -> None:
    [uncertain] = rota.ok("effects", "--json").json["effects"]
    assert {name: uncertain[name] for name in ("key", "step_of", "status", "job", "result")} == {
        "key": "mail:5", "step_of": None, "status": "uncertain", "job": 1, "result": None
    }  # fmt: skip
    _, line = rota.ok("effects", "--status", "uncertain").out.splitlines()
    assert line.split()[:3] == ["mail:5", "uncertain", "1"]
    done = ("effects", "resolve", "mail:5", "--done", "--result", '"m-7"')
    settled = rota.ok(*done, "--why", "it is in the log", "--by", "ann")
    assert settled.out == "mail:5: done\n"
    assert find(rota) == []
    [found] = rota.ok("effects", "--key", "mail:5", "--json").json["effects"]
    assert (found["status"], found["result"]) == ("done", "m-7")
    assert "mail:5 as done by ann: it is in the log" in rota.ok("job", "1").out
    rota.ok("retry", "1")
    rota.ok("work", "--drain")
    assert rota.ok("job", "2", "--json").json["job"]["status"] == "succeeded"


@rule("M52")
def test_what_cannot_be_settled_is_said_in_words_and_stays(
    rota: Here, connection: psycopg.Connection[TupleRow]
) -> None:
    connection.execute("select rota.enqueue('t')")
    [held] = connection.execute(
        "select id, claims from rota.claim('default', '{t}', 'shell', 1)"
    ).fetchall()
    connection.execute("select rota.worker_effect_begin(%s, %s, 'mail:9')", held)
    for arguments, status, said in (
        (("resolve", "mail:5"), 2, "say --done or --not-done"),
        (("resolve", "mail:6", "--done"), 2, "no effect 'mail:6'; `rota effects` lists"),
        (("resolve", "pack", "--job", "1", "--done"), 2, "no step 'pack' of job 1; `rota eff"),
        (("resolve", "mail:5", "--not-done", "--result", "1"), 2, "a result is for an effect"),
        (("resolve", "mail:5", "--done", "--result", "{"), 2, "--result is not JSON: "),
        (("resolve", "", "--done"), 2, "key must"),
        (("--status", "lost"), 2, "--status must be one of intended, done, uncertain"),
        (("--key", "k" * 256), 2, "--key must"),
        (("resolve", "mail:9", "--not-done"), 1, "a running job is at effect 'mail:9': nothing"),
    ):
        ended, sentence = rota("effects", *arguments).error
        assert (ended, sentence[: len(said)]) == (status, said), arguments
    assert find(rota) == [("mail:9", "intended"), ("mail:5", "uncertain")]
