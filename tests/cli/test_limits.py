"""`rota limits` and `rota limits set`, beside their twins in Python and SQL."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota as package
from tests.store.work import insert
from tests.support.cli import CommandLine
from tests.support.rules import rule

pytestmark = pytest.mark.system

SHOP = """
import rota

app = rota.App()


@app.job("mail", rate_limit=rota.RateLimit("smtp", 100, per="1m", burst=10))
def mail() -> None: ...


@app.job("call", rate_limit=rota.RateLimit("api", 5, per="1s", key=lambda account: account))
def call(account: str) -> None: ...
"""


@pytest.fixture
def rota(shop: Path, database: str) -> CommandLine:
    """`rota` in a project with two rate limits."""
    (shop / "shop.py").write_text(SHOP)
    rota = CommandLine(shop, ROTA_DATABASE_URL=database)
    rota.ok("sync")
    return rota


@pytest.mark.nightly
@rule("M62", "M87")
def test_a_limit_is_seen_and_changed_and_the_change_stands_until_code_says_something_else(
    rota: CommandLine, shop: Path, database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    insert(connection, 3, job_type="mail", waits_for="limit smtp")
    limits = {limit["name"]: limit for limit in rota.ok("limits", "--json").json["limits"]}
    figures = [
        (limit["starts"], limit["per_s"], limit["burst"], limit["waiting"])
        for limit in limits.values()
    ]
    assert figures == [(5, 1.0, 1, 0), (100, 60.0, 10, 3)]

    said = rota.ok("limits", "set", "smtp", "50", "--burst", "5", "--why", "a warning", "--by", "a")
    assert said.out == "rate limit smtp: 50 starts in 1 min, 5 at once\n"
    rota.ok("sync")
    shown = next(line for line in rota.ok("limits").out.splitlines() if "smtp" in line)
    assert shown.split()[:4] == ["smtp", "50", "1", "min"] and "a warning" in shown

    app = package.App(database)
    assert app.limits.set("smtp", per="30s", by="b").burst == 5
    [row] = connection.execute("select starts, per::text, burst from rota.limits where name='smtp'")
    assert row == (50, "00:00:30", 5)
    connection.execute("select rota.limit_set('smtp', 60, p_by => 'c')")
    by = connection.execute("select by, why, detail ->> 'starts' from rota.action order by id")
    assert by.fetchall() == [("a", "a warning", "50"), ("b", None, "50"), ("c", None, "60")]

    # Longer than before: Python tells a new file from its bytecode by the second and the size.
    (shop / "shop.py").write_text(SHOP.replace('100, per="1m"', '2_000, per="1m"'))
    rota.ok("sync")
    assert [limit.starts for limit in app.limits.list()] == [5, 2_000]
    app.close()


@rule("M62")
def test_a_start_that_was_free_earlier_is_free_now(
    rota: CommandLine, database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    app = package.App(database)
    assert app.limits.take("smtp") and app.limits.take("smtp", 9)
    assert (limit := app.limits.list()[1]).next_at is not None and limit.name == "smtp"
    connection.execute("update rota.rate_limit_key set tat = tat - interval '1 hour'")
    assert [limit.next_at for limit in app.limits.list()] == [None, None]
    [api, smtp] = rota.ok("limits", "--utc").out.splitlines()[1:]
    assert " now " in smtp and " now " not in api
    app.close()


@rule("M62")
def test_a_change_that_cannot_be_says_what_is_wrong(rota: CommandLine) -> None:
    for arguments, what in (
        (("mail", "5"), "no rate limit 'mail'; `rota limits` lists"),
        (("smtp", "0"), "must be a whole number from 1"),
        (("smtp",), "say what to change"),
        (("smtp", "5", "--burst", "6"), "the burst of a rate limit is 1 to its starts, 5"),
        (("smtp", "5", "--per", "1ms"), "per must be at least 100 ms"),
    ):
        failed = rota("limits", "set", *arguments)
        assert (failed.status, what in failed.err) == (2, True), failed.err
