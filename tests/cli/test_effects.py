"""`rota effects`, `rota effects resolve` and what else the commands show of effects and steps."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.support.cli import CommandLine
from tests.support.rules import rule

pytestmark = pytest.mark.system

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
def rota(shop: Path, database: str) -> CommandLine:
    """`rota`, and an order of which nobody knows whether its mail was sent."""
    (shop / "shop.py").write_text(SHOP)
    rota = CommandLine(shop, ROTA_DATABASE_URL=database)
    rota.ok("enqueue", "order", "--payload", '{"number": 5}')
    rota.ok("work", "--drain")
    return rota


@rule("M52", "M87")
def test_a_person_finds_an_uncertain_effect_and_settles_it(rota: CommandLine) -> None:
    [uncertain] = rota.ok("effects", "--json").json["effects"]
    assert {name: uncertain[name] for name in ("key", "step_of", "status", "job", "result")} == {
        "key": "mail:5", "step_of": None, "status": "uncertain", "job": 1, "result": None
    }  # fmt: skip
    titles, line = rota.ok("effects", "--status", "uncertain").out.splitlines()
    assert titles.split()[:3] == ["key", "status", "job"], "none is a step"
    assert line.split()[:3] == ["mail:5", "uncertain", "1"]
    assert "1 effect may or may not have happened" in rota("doctor").out

    done = (
        "effects",
        "resolve",
        "mail:5",
        "--done",
        "--result",
        '"m-7"',
        "--why",
        "it is in the log",
    )
    assert rota.ok(*done, "--by", "ann").out == "mail:5: done\n"
    assert rota.ok("effects").out == "no effects found\n"
    [settled] = rota.ok("effects", "--key", "mail:5", "--json").json["effects"]
    assert (settled["status"], settled["result"]) == ("done", "m-7")
    shown = rota.ok("job", "1").out
    assert 'mail:5: done, "m-7"' in shown
    assert 'reserve: done, "place 5"' in shown
    assert "mail:5 as done by ann: it is in the log" in shown
    rota.ok("retry", "1")
    rota.ok("work", "--drain")
    assert rota.ok("job", "2", "--json").json["job"]["status"] == "succeeded"


@rule("M52")
def test_effects_are_listed_by_job_and_name_and_a_step_settled_by_its_job(
    rota: CommandLine,
) -> None:
    def listed(*arguments: str) -> list[tuple[str, str]]:
        found = rota.ok("effects", *arguments, "--json").json["effects"]
        return [(one["key"], one["status"]) for one in found]

    assert listed("--job", "1") == [("reserve", "done"), ("mail:5", "uncertain")]
    assert listed("--job", "1", "--limit", "1") == [("mail:5", "uncertain")]
    assert listed("--key", "reserve") == listed("--status", "done") == [("reserve", "done")]
    assert listed("--status", "intended") == []
    settled = rota.ok("effects", "resolve", "mail:5", "--not-done", "--json").json
    assert settled == {"key": "mail:5", "job": None, "done": False}
    of_step = ("effects", "resolve", "reserve", "--job", "1", "--not-done")
    ended, sentence = rota(*of_step).error
    assert (ended, sentence) == (
        2,
        "step 'reserve' is done: nothing was changed; if it is to happen once more, say again "
        "(`--again`)",
    )
    assert listed("--key", "reserve") == [("reserve", "done")]
    assert rota.ok(*of_step, "--again").out == "reserve: not done\n"
    assert listed("--key", "reserve") == []


@rule("M52")
def test_a_requeue_from_the_first_step_says_so_and_keeps_the_effects(rota: CommandLine) -> None:
    told = "their finished steps are forgotten: they start over"
    assert told not in rota.ok("retry", "--type", "nobody", "--fresh", "--yes").out
    assert told in rota.ok("retry", "1", "--fresh").out
    kept = rota.ok("effects", "--job", "2", "--json").json["effects"]
    assert [(one["key"], one["status"]) for one in kept] == [("mail:5", "uncertain")]
    assert ", from the first step" in rota.ok("job", "2").out


def test_what_cannot_be_is_said_in_words(rota: CommandLine) -> None:
    for arguments, said in (
        (("effects", "resolve", "mail:5"), "say --done or --not-done"),
        (("effects", "resolve", "mail:6", "--done"), "no effect 'mail:6'; `rota effects` lists"),
        (
            ("effects", "resolve", "pack", "--job", "1", "--done"),
            "no step 'pack' of job 1; `rota effects`",
        ),
        (
            ("effects", "resolve", "mail:5", "--not-done", "--result", "1"),
            "a result is for an effect that",
        ),
        (("effects", "resolve", "mail:5", "--done", "--result", "{"), "--result is not JSON: "),
        (("effects", "resolve", "", "--done"), "key must"),
        (("effects", "--status", "lost"), "--status must be one of intended, done, uncertain"),
        (("effects", "--key", "k" * 256), "--key must"),
    ):
        status, sentence = rota(*arguments).error
        assert (status, sentence[: len(said)]) == (2, said), arguments
    assert len(rota.ok("effects", "--json").json["effects"]) == 1


def test_an_effect_that_a_running_job_is_at_is_not_settled(rota: CommandLine) -> None:
    with psycopg.connect(rota.environment["ROTA_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("select rota.enqueue('t')")
        [(job, claims)] = connection.execute(
            "select id, claims from rota.claim('default', '{t}', 'shell', 1)"
        ).fetchall()
        connection.execute("select rota.effect_begin(%s, %s, 'mail:9')", [job, claims])
    ended, sentence = rota("effects", "resolve", "mail:9", "--not-done").error
    assert (ended, sentence) == (
        1,
        "a running job is at effect 'mail:9': nothing was changed; wait for it, or cancel it",
    )
