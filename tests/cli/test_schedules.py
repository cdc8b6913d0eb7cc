"""`rota schedules`, alone and with its verbs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from psycopg.rows import TupleRow

from rota.cli import cli, run
from rota.cli.output import CELL_MAX, FACT_MAX, LINES_MAX, cell
from rota.client.schedules import Schedules
from rota.declare.options import UsingOptions
from rota.declare.schedule import Timing
from tests.support.project import enter
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
Rota = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(
    shop: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Rota:
    """`rota` in the project, in this process: its status, its stdout and its stderr."""
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)

    def rota(*arguments: str) -> tuple[int, str, str]:
        status = run(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return rota


@rule("M10", "M87")
def test_a_schedule_is_put_shown_paused_resumed_triggered_and_deleted(
    here: Rota, connection: Connection
) -> None:
    assert here("sync")[0] == 0
    status, out, _ = here(
        "schedules", "put", "mail", "send_mail", "--payload", '{"user_id": 1}',
        "--cron", "0 8 * * 1", "--timezone", "Asia/Kolkata",
        "--jitter", "5m", "--priority", "2", "--max-attempts", "4", "--expires", "2h",
        "--meta", '{"team": "sales"}', "--by", "ann", "--why", "sales",
    )  # fmt: skip
    assert status == 0 and "active" in out and "0 8 * * 1 (Asia/Kolkata)" in out
    assert connection.execute("select expires, meta from rota.schedule").fetchone() == (
        timedelta(hours=2),
        {"team": "sales"},
    )
    assert ["expires", "2", "h"] in [
        line.split() for line in out.splitlines()
    ] and '{"team": "sales"}' in out
    assert connection.execute("select verb, schedule, by, why from rota.action").fetchall() == [
        ("put", "mail", "ann", "sales")
    ]
    assert "paused" in here("schedules", "pause", "mail", "--why", "broken", "--by", "bob")[1]
    assert "paused" in here("schedules")[1]
    assert "active" in here("schedules", "resume", "mail")[1]
    assert here("schedules", "trigger", "mail")[1] == "job 1 queued\n"
    status, out, _ = here("schedules", "show", "mail")
    assert status == 0
    assert out.count("08:00 +0530") == 10 and out.count("Mon ") == 10
    assert "triggered" in out and "queued" in out
    shown: dict[str, Any] = json.loads(
        here("schedules", "show", "mail", "--next", "2", "--json")[1]
    )
    assert shown["schedule"]["payload"] == {"user_id": 1, "template": "welcome"} or shown[
        "schedule"
    ]["payload"] == {"user_id": 1}
    assert (shown["schedule"]["expires_s"], shown["schedule"]["meta"]) == (7200, {"team": "sales"})
    assert len(shown["next"]) == 2 and shown["runs"][0]["job"] == 1
    assert here("schedules", "delete", "mail")[0] == 0
    assert here("schedules")[1] == "no schedules\n"
    status, out, _ = here("schedules", "show", "mail")
    assert status == 0 and "deleted" in out and "triggered" in out, "its runs stay"
    kept = json.loads(here("schedules", "show", "mail", "--json")[1])
    assert (kept["schedule"], kept["next"], kept["runs"][0]["job"]) == (None, [], 1)
    for verb in ("show", "pause", "resume", "trigger", "delete"):
        assert here("schedules", verb, "mial")[::2] == (2, "rota: no schedule 'mial'\n")


@rule("M10", "M21")
def test_what_can_be_said_of_a_job_in_python_can_be_said_on_the_command_line() -> None:
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    of_enqueue = {str(option.name) for option in commands["enqueue"].params}
    of_put = {str(option.name) for option in commands["schedules"].commands["put"].params}
    of_job = UsingOptions.__annotations__.keys() - {"connection"}

    assert of_enqueue >= of_job
    # The tick determines when a job runs, and each tick makes one job, without a key. Its timeout
    # and the capacity of its lane are its type's.
    assert of_put >= of_job - {
        "run_at",
        "delay",
        "key",
        "on_duplicate",
        "timeout",
        "group_capacity",
    }
    assert of_put >= {
        *inspect.signature(Schedules.put).parameters,
        *Timing.__annotations__,
    } - {"self", "job", "connection", "timing"}


@rule("M10")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x", "send_mail", "--cron", "0 8 * * 1"), "argument 'user_id'"),
        (("x", "send_mial", "--payload", "{}"), "did you mean 'send_mail'"),
        (
            ("x", "report", "--payload", '{"day": "2026-01-14"}', "--cron", "0 8 * *"),
            "is no cron expression",
        ),
        (
            ("x", "report", "--payload", '{"day": "2026-01-14"}', "--timezone", "Mars"),
            "there is no time zone 'Mars'",
        ),
        (
            ("x", "report", "--payload", '{"day": "2026-01-14"}', "--catch-up", "some"),
            "--catch-up must be",
        ),
        (("x", "other", "--force", "--expires", "0s"), "expires must be at least"),
        (("x", "other", "--force", "--meta", "[1]"), "--meta: must be a JSON object"),
        (("x", "other", "--force", "--jitter", "3d"), "jitter must be at most 1 d"),
    ],
)
def test_what_cannot_be_put_is_said_and_nothing_is(
    here: Rota, connection: Connection, arguments: tuple[str, ...], says: str
) -> None:
    status, out, error = here("schedules", "put", *arguments)
    assert (status, out) == (2, "") and says in error
    assert connection.execute("select from rota.schedule").fetchall() == []


def test_a_type_that_the_app_does_not_have_is_put_with_force(
    here: Rota, connection: Connection
) -> None:
    assert (
        here("schedules", "put", "x", "of_another_language", "--payload", '{"a": 1}', "--force")[0]
        == 0
    )
    stored = "select job_type, payload, origin, cron from rota.schedule"
    assert connection.execute(stored).fetchone() == ("of_another_language", {"a": 1}, "cli", None)


@rule("M45", "M84")
def test_a_name_from_sql_cannot_move_the_cursor_and_a_bad_row_can_be_shown_and_deleted(
    here: Rota, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) "
        "values (E'evil\\x1b[2J\\nlooks-like t', 't', E'often\\n')"
    )
    listed = here("schedules")[1]
    assert "\x1b" not in listed and len(listed.splitlines()) == 2
    evil = "evil\x1b[2J\nlooks-like t"
    for verb in ("show", "pause", "resume", "delete"):
        status, said, _ = here("schedules", verb, evil)
        assert status == 0 and "\x1b" not in said, verb
    assert here("schedules", "show", evil)[0] == 2
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('bad', 't', 'often')"
    )
    assert "is no cron expression" in here("schedules", "show", "bad")[1]


@rule("M15", "M84")
def test_texts_that_a_producer_made_long_are_refused_or_cut(
    here: Rota, connection: Connection
) -> None:
    for column, most in ("paused_by", 200), ("paused_why", 500), ("last_error", 500):
        put = (
            f"insert into rota.schedule (name, job_type, paused_at, {column})"
            " values (%s, 't', now(), repeat(E'\n', %s))"
        ).encode()
        connection.execute(put, [column, most])
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(put, ["s", most + 1])
    connection.execute(
        "insert into rota.schedule (name, job_type, payload, meta)"
        " values ('s', 't', jsonb_build_object('a', %s::text), jsonb_build_object('b', %s::text))",
        ["word " * 10_000, "word " * 1_000_000],
    )
    status, said, _ = here("schedules", "show", "s")
    assert status == 0 and len(said) < 300_000 and "4,934,473 more characters" in said
    assert said.count("word") == 10_000 + 13_106
    assert len(here("schedules", "show", "s", "--json")[1]) > 5_000_000


@rule("M15")
@pytest.mark.parametrize("most", [FACT_MAX, CELL_MAX])
def test_a_value_is_shown_with_few_lines_and_says_what_is_missing(most: int) -> None:
    shown = cell("ab\n" * 1_000_000, most).plain
    assert shown.count("\n") == min(LINES_MAX, most // 3)
    assert shown.endswith(f"… ({3_000_000 - shown.index('…'):,} more characters)")
    assert cell("a" * most, most).plain == "a" * most
