"""`rota schedules`, alone and with its verbs."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from rota.cli.output import CELL_MAX, FACT_MAX, LINES_MAX, clean
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@rule("M10")
def test_what_cannot_be_put_is_said_and_nothing_is_and_force_puts_what_the_app_does_not_have(
    rota: Here, connection: Connection
) -> None:
    report = ("x", "report", "--payload", '{"day": "2026-01-14"}')
    for arguments, says in (
        (("x", "send_mail", "--cron", "0 8 * * 1"), "argument 'user_id'"),
        (("x", "send_mial", "--payload", "{}"), "did you mean 'send_mail'"),
        ((*report, "--cron", "0 8 * *"), "is no cron expression"),
        ((*report, "--timezone", "Mars"), "there is no time zone 'Mars'"),
        ((*report, "--catch-up", "some"), "--catch-up must be"),
        (("x", "other", "--force", "--expires", "0s"), "expires must be at least"),
        (("x", "other", "--force", "--meta", "[1]"), "--meta: must be a JSON object"),
        (("x", "other", "--force", "--jitter", "3d"), "jitter must be at most 1 d"),
    ):
        status, sentence = rota("schedules", "put", *arguments).error
        assert status == 2 and says in sentence, arguments
    stored = "select job_type, payload, origin, cron from rota.schedule"
    assert connection.execute(stored).fetchall() == []
    rota.ok("schedules", "put", "x", "of_another_language", "--payload", '{"a": 1}', "--force")
    assert connection.execute(stored).fetchone() == ("of_another_language", {"a": 1}, "cli", None)


@rule("M45", "M84")
def test_a_name_from_sql_cannot_move_the_cursor_and_a_bad_row_can_be_shown_and_deleted(
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) "
        "values (E'[red]evil[/red]\\x1b[2J\\nlooks-like t', 't', E'often\\n')"
    )
    listed = rota.ok("schedules").out
    assert "\x1b" not in listed and len(listed.splitlines()) == 2
    assert "[red]evil[/red]\N{REPLACEMENT CHARACTER}[2J" in listed
    evil = "[red]evil[/red]\x1b[2J\nlooks-like t"
    for verb in ("show", "pause", "resume", "delete"):
        assert "\x1b" not in rota.ok("schedules", verb, evil).out, verb
    assert rota("schedules", "show", evil).status == 2


@rule("M15", "M84")
def test_a_text_that_a_producer_made_long_is_cut(rota: Here, connection: Connection) -> None:
    connection.execute(
        "insert into rota.schedule (name, job_type, meta)"
        " values ('s', 't', jsonb_build_object('b', %s::text))",
        ["word " * 100_000],
    )
    said = rota.ok("schedules", "show", "s").out
    assert len(said) < 300_000 and "more characters)" in said
    assert len(rota.ok("schedules", "show", "s", "--json").out) > 500_000
    for most in (FACT_MAX, CELL_MAX):
        shown = clean("ab\n" * 1_000_000, most)
        assert shown.count("\n") == min(LINES_MAX, most // 3)
        assert shown.endswith(f"… ({3_000_000 - shown.index('…'):,} more characters)")
        assert clean("a" * most, most) == "a" * most
