"""`rota schedules`, alone and with its verbs."""

from __future__ import annotations

from datetime import timedelta

import psycopg
from psycopg.rows import TupleRow

from rota.cli.output import CELL_MAX, FACT_MAX, LINES_MAX, cell
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@rule("M10", "M87")
def test_a_schedule_is_put_shown_paused_resumed_triggered_and_deleted(
    rota: Here, connection: Connection
) -> None:
    rota.ok("sync")
    shown = rota.ok(
        "schedules", "put", "mail", "send_mail", "--payload", '{"user_id": 1}',
        "--cron", "0 8 * * 1", "--timezone", "Asia/Kolkata",
        "--jitter", "5m", "--priority", "2", "--max-attempts", "4", "--expires", "2h",
        "--meta", '{"team": "sales"}', "--by", "ann", "--why", "sales",
    ).out  # fmt: skip
    assert "active" in shown and "0 8 * * 1 (Asia/Kolkata)" in shown
    assert connection.execute("select expires, meta from rota.schedule").fetchone() == (
        timedelta(hours=2),
        {"team": "sales"},
    )
    assert connection.execute("select verb, schedule, by, why from rota.action").fetchall() == [
        ("put", "mail", "ann", "sales")
    ]
    rota.ok("schedules", "pause", "mail", "--why", "broken", "--by", "bob")
    assert "paused" in rota.ok("schedules").out
    assert "active" in rota.ok("schedules", "resume", "mail").out
    assert rota.ok("schedules", "trigger", "mail").out == "job 1 queued\n"
    out = rota.ok("schedules", "show", "mail").out
    assert out.count("08:00 +0530") == 10 and out.count("Mon ") == 10
    assert "triggered" in out and "queued" in out
    found = rota.ok("schedules", "show", "mail", "--next", "2", "--json").json
    assert found["schedule"]["payload"]["user_id"] == 1
    assert (found["schedule"]["expires_s"], found["schedule"]["meta"]) == (7200, {"team": "sales"})
    assert len(found["next"]) == 2 and found["runs"][0]["job"] == 1
    rota.ok("schedules", "delete", "mail")
    assert rota.ok("schedules").out == "no schedules\n"
    kept = rota.ok("schedules", "show", "mail", "--json").json
    assert (kept["schedule"], kept["next"], kept["runs"][0]["job"]) == (None, [], 1)
    for verb in ("show", "pause", "resume", "trigger", "delete"):
        assert rota("schedules", verb, "mial").error == (2, "no schedule 'mial'")


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
        "values (E'evil\\x1b[2J\\nlooks-like t', 't', E'often\\n')"
    )
    listed = rota.ok("schedules").out
    assert "\x1b" not in listed and len(listed.splitlines()) == 2
    evil = "evil\x1b[2J\nlooks-like t"
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
        shown = cell("ab\n" * 1_000_000, most).plain
        assert shown.count("\n") == min(LINES_MAX, most // 3)
        assert shown.endswith(f"… ({3_000_000 - shown.index('…'):,} more characters)")
        assert cell("a" * most, most).plain == "a" * most
