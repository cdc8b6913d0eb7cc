"""The command line, in processes of its own."""

from __future__ import annotations

import json
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from rota.release import VERSION
from rota.store.migrate import migrations
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule
from tests.support.wait import eventually

pytestmark = pytest.mark.system

Connection = psycopg.Connection[TupleRow]
NAMES = [migration.name for migration in migrations()]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project: a directory with a module and a pyproject.toml that names its App."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\n\n[tool.rota]\napp = "shop:app"\n')
    return tmp_path


@pytest.fixture
def rota(shop: Path, database: str) -> CommandLine:
    """`rota` in that project, with a migrated database."""
    return CommandLine(shop, ROTA_DATABASE_URL=database)


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


# Schema


def test_migrate_makes_the_schema_once_and_check_tells_what_is_missing(tmp_path: Path, empty_database: str) -> None:
    rota = CommandLine(tmp_path)
    here = ("--url", empty_database, "--schema", "jobs")
    status, sentence = rota("migrate", "--check", *here).error
    assert status == 3 and "rota migrate" in sentence
    assert rota.ok("migrate", *here, "--payload-bytes-max", "2048", "--json").json == {"schema": "jobs", "applied": NAMES}
    assert rota.ok("migrate", *here).out == "schema jobs: up to date\n"
    assert rota.ok("migrate", "--check", *here, "--json").json == {"schema": "jobs", "applied": []}
    large = json.dumps({"text": "x" * 3_000})
    assert rota("enqueue", "any", "--force", *here, "--payload", large).error == (
        2,
        "job type 'any': payload: 3,012 bytes is over the limit of 2,048",
    )


def test_migrate_as_sql_needs_no_database_and_does_the_same(tmp_path: Path, empty_database: str) -> None:
    printed = CommandLine(tmp_path, ROTA_SCHEMA="other").ok("migrate", "--sql").out
    with psycopg.connect(empty_database) as connection:
        connection.execute(printed.encode())
    assert CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database, ROTA_SCHEMA="other").ok("migrate", "--check").status == 0


def test_sync_declares_the_types_of_the_app_and_types_tells_their_retry_plans(rota: CommandLine) -> None:
    assert rota.ok("types").out == "no job types are declared; `rota sync` or a worker's start declares them\n"
    assert rota.ok("sync", "--json").json == {"schema": "rota", "declared": ["report", "send_mail"]}
    report, send_mail = rota.ok("types", "--json").json["types"]
    assert report["retry_words"] == "10 s, 20 s, 30 s, dead after 60 s"
    assert (send_mail["queue"], send_mail["aliases"], send_mail["lease_s"], send_mail["release"]) == ("email", ["mail"], 120.0, "shop-1")
    assert "10 s, 20 s, 30 s, dead after 60 s" in rota.ok("types").out


# The App


def test_the_app_comes_from_the_option_the_environment_or_the_nearest_pyproject(shop: Path, database: str) -> None:
    below = shop / "src" / "deeper"
    below.mkdir(parents=True)
    (shop / "src" / "pyproject.toml").write_text("[project]\nname = 'nothing about rota'\n")
    (below / "mine.py").write_text("import rota\napp = rota.App(schema='mine')\nother = 1\n")
    rota = CommandLine(below, ROTA_DATABASE_URL=database)
    assert rota.ok("sync", "--json").json["declared"] == ["report", "send_mail"]
    assert rota("sync", "--app", "mine:app").error[1].endswith('(relation "mine.migration" does not exist)')
    assert rota("sync", "--app", "mine:other").error == (3, "'mine:other' is a int, not a rota.App")
    named = CommandLine(below, ROTA_DATABASE_URL=database, ROTA_APP="nowhere:app")
    assert named("work", "--drain").error == (
        3,
        "'nowhere:app': no module 'nowhere' on sys.path (the current directory is the first place looked at)",
    )


def test_without_an_app_the_commands_that_need_one_say_how_to_name_it_and_the_others_work(tmp_path: Path, database: str) -> None:
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    for command in (("sync",), ("work", "--drain"), ("enqueue", "send_mail")):
        status, sentence = rota(*command).error
        assert status == 3 and "--app module:attribute" in sentence
    assert rota.ok("jobs", "--json").json == {"jobs": []}


# Enqueue


@rule("M51")
def test_enqueue_inserts_a_checked_job_and_says_when_its_key_is_taken(rota: CommandLine, connection: Connection) -> None:
    options = ("--priority", "-3", "--queue", "slow", "--idempotency-key", "once", "--run-at", "2037-01-01T00:00:00+01:00")
    first = rota.ok("enqueue", "send_mail", "--payload", '{"user_id": 7}', *options, "--json").json
    assert first == {"id": first["id"], "created": True, "status": "queued"}
    assert rows(connection, "select queue, priority, run_at, payload, idempotency_key from rota.job") == [
        ("slow", -3, datetime.fromisoformat("2036-12-31T23:00:00+00:00"), {"user_id": 7}, "once")
    ]
    again = rota.ok("enqueue", "mail", "--payload", '{"user_id": 8}', "--idempotency-key", "once")
    assert again.out == f"not inserted: job {first['id']}, queued, has this idempotency key\n"
    assert rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--delay", "1h").status == 0
    assert rows(connection, "select job_type, run_at > now() + '59 min' from rota.job order by id") == [
        ("send_mail", True),
        ("report", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "--payload", '{"day": '], "job type 'report': payload: not valid JSON: Input data was truncated"),
        (["report", "--payload", '["2026-01-14"]'], "must be a JSON object"),
        (["report", "--payload", '{"day": "14 January"}'], "argument 'day'"),
        (["report", "--payload", '{"day": "2026-01-14", "zone": 1}'], "argument 'zone': the handler takes no such argument"),
        (["report"], "argument 'day': missing"),
        (["send_mail", "--payload", '{"user_id": 1}', "--run-at", "2037-01-01T00:00:00"], "run_at must name its zone"),
        (["send_mail", "--payload", '{"user_id": 1}', "--run-at", "tomorrow"], "run_at must be a date and time with its zone"),
        (["send_mail", "--payload", '{"user_id": 1}', "--delay", "-5m"], "delay must be"),
        (["send_mail", "--payload", '{"user_id": 1}', "--priority", "101"], "priority must be a whole number from -100 to 100"),
        (["send_mial", "--payload", "{}"], "unknown job type 'send_mial'; did you mean 'send_mail'? (--force inserts it all the same)"),
        (["other", "--force", "--payload", '{"text": "\\u0000"}'], "NUL"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_sentence_and_not_inserted(
    rota: CommandLine, connection: Connection, arguments: list[str], sentence: str
) -> None:
    status, said = rota("enqueue", *arguments).error
    assert status == 2 and sentence in said
    assert rows(connection, "select from rota.job") == []


@rule("M15")
def test_force_inserts_a_type_that_the_app_does_not_have_as_the_database_declares_it(rota: CommandLine, connection: Connection) -> None:
    connection.execute("insert into rota.job_type (name, queue, priority) values ('of_another_app', 'theirs', 9)")
    assert rota.ok("enqueue", "of_another_app", "--force", "--payload", '{"a": [1, null]}').out.endswith("queued\n")
    assert rota.ok("enqueue", "of_nobody", "--force", "--json").json["created"] is True
    assert rows(connection, "select queue, priority, payload from rota.job order by id") == [
        ("theirs", 9, {"a": [1, None]}),
        ("default", 0, {}),
    ]


# Work


@rule("M80")
@rule("M84")
def test_a_drain_logs_each_step_ends_with_its_report_and_exits_0_also_when_jobs_failed(rota: CommandLine) -> None:
    for number in ("1", "2"):
        rota.ok("enqueue", "send_mail", "--payload", f'{{"user_id": {number}}}')
    failed = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json").json["id"]
    ran = rota.ok("work", "--drain", "--for", "50s")
    assert ran.out == "claimed 3, succeeded 2, failed 1, dead 0, oldest due: none\n"
    assert sum("send_mail attempt 1: succeeded in" in line for line in ran.err.splitlines()) == 2
    warning = next(line for line in ran.err.splitlines() if "WARNING" in line)
    assert f"job {failed} report attempt 1: failed, to be retried in" in warning and "ValueError: no data for 2026-01-14" in warning
    quiet = rota.ok("work", "--drain", "--queue", "email=2", "--log-level", "warning", "--json")
    assert quiet.json == {"claimed": 0, "succeeded": 0, "failed": 0, "dead": 0, "oldest_due": None}
    assert quiet.err == ""


@rule("M83")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_says_so_and_exits_0(rota: CommandLine, connection: Connection, number: signal.Signals) -> None:
    with rota.start("work", "--slots", "3", "--grace", "5s") as process:
        eventually(lambda: rows(connection, "select from rota.worker where stopped_at is null"), 30, what="the worker started")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1].endswith("stopped")
    assert rows(connection, "select stopped_at is not null from rota.worker") == [(True,)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--queue", "email"], "--queue takes name=slots, as in email=20, not 'email'"),
        (["--queue", "email=1", "--queue", "email=2"], "--queue names 'email' twice"),
        (["--queue", "email=1", "--slots", "2"], "give one of them"),
        (["--for", "5s"], "--for ends a drain: give --drain as well"),
        (["--drain", "--for", "soon"], "must be a timedelta or a string"),
        (["--slots", "many"], "Invalid value for '--slots'"),
        (["--fast"], "No such option: --fast"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(rota: CommandLine, arguments: list[str], sentence: str) -> None:
    status, said = rota("work", *arguments).error
    assert status == 2 and sentence in said


# Read


@rule("M43")
def test_a_job_tells_its_whole_story(rota: CommandLine) -> None:
    failed = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json").json["id"]
    rota.ok("work", "--drain")
    story = rota.ok("job", str(failed), "--json").json
    job, [attempt] = story["job"], story["attempts"]
    assert (job["status"], job["attempts"], job["max_attempts"], job["payload"]) == ("failed", 1, 4, {"day": "2026-01-14"})
    assert (attempt["error_type"], attempt["message"], attempt["verdict_rule"]) == ("ValueError", "no data for 2026-01-14", "unknown error")
    assert (attempt["release"], attempt["next_run_at"], attempt["outcome"]) == ("shop-1", job["run_at"], "failed")
    shown = rota.ok("job", str(failed)).out
    assert attempt["worker"] in shown and 'raise ValueError(f"no data for {day}")' in shown and "transient (unknown error)" in shown
    assert rota("job", "12345").error == (2, "no job 12345: it never existed, or its history is no longer kept")


def test_jobs_are_found_by_every_filter(rota: CommandLine) -> None:
    rota.ok("enqueue", "send_mail", "--payload", '{"user_id": 1}', "--idempotency-key", "k")
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}')
    rota.ok("work", "--drain")
    mail, report = (rota.ok("jobs", "--type", name, "--json").json["jobs"][0]["id"] for name in ("send_mail", "report"))

    def found(*filters: str) -> list[int]:
        return [job["id"] for job in rota.ok("jobs", *filters, "--json").json["jobs"]]

    assert found() == [report, mail]
    assert found("--status", "succeeded", "--queue", "email", "--key", "k") == [mail]
    assert found("--error-type", "ValueError") == [report]
    assert found("--limit", "1") == [report] and found("--before", str(report)) == [mail]
    lines = rota.ok("jobs").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["id", "type"], [str(report), "report"], [str(mail), "send_mail"]]
    assert rota.ok("jobs", "--status", "dead").out == "no such jobs\n"
    assert "'ded' is not one of" in rota("jobs", "--status", "ded").error[1]


@rule("M85")
def test_the_overviews_tell_how_things_stand_and_count_no_further_than_they_must(rota: CommandLine, connection: Connection) -> None:
    connection.execute("insert into rota.job (job_type) select 'nobody_knows' from generate_series(1, 10001)")
    connection.execute("insert into rota.job (job_type, queue, priority, run_at) values ('later', 'email', 5, now() + interval '1 day')")
    stats = rota.ok("stats", "--json").json
    assert stats["jobs"] == {"queued": 10_000, "waiting": 0, "running": 0, "failed": 0, "dead": 0} and stats["counted_to"] == 10_000
    assert stats["oldest_due"]["waiting_s"] >= 0
    assert "≥ 10,000" in rota.ok("stats").out and "oldest due: 2" in rota.ok("stats").out
    default, email = rota.ok("queues", "--json").json["queues"]
    assert (default["queue"], default["due"], default["later"]) == ("default", 10_000, 0)
    assert (email["queue"], email["priority"], email["due"], email["later"]) == ("email", 5, 0, 1)
    assert "≥ 10,000" in rota.ok("queues").out
    assert rota.ok("workers").out == "no worker within the last hour\n"
    rota.ok("work", "--drain", "--queue", "email=2")
    [worker] = rota.ok("workers", "--json").json["workers"]
    assert (worker["queues"], worker["release"], worker["version"]) == ({"email": 2}, "shop-1", VERSION)
    assert worker["name"] in rota.ok("workers").out


def test_what_a_producer_wrote_cannot_steer_the_terminal(rota: CommandLine, connection: Connection) -> None:
    connection.execute("insert into rota.job (job_type, queue) values (e'[red]loud[/red]\\x1b[2J', 'default')")
    shown = rota.ok("jobs").out
    assert "\x1b" not in shown and "[red]loud[/red]\N{REPLACEMENT CHARACTER}[2J" in shown


# Errors


def test_each_trouble_with_the_database_is_one_sentence_and_its_own_exit_status(
    shop: Path, database: str, empty_database: str, admin: Connection
) -> None:
    def said(url: str, *command: str) -> tuple[int, str]:
        return CommandLine(shop, ROTA_DATABASE_URL=url)(*(command or ("jobs",))).error

    absent = make_conninfo(database, port=1)
    for command in (
        ("jobs",),
        ("sync",),
        ("work",),
        ("work", "--drain"),
        ("migrate",),
        ("enqueue", "send_mail", "--payload", '{"user_id": 1}'),
    ):
        status, sentence = said(absent, *command)
        assert status == 5 and "Connection refused" in sentence
    name = sql.Identifier(f"cli_{Path(shop).name[:40]}")
    admin.execute("do $$ begin create role password_users; exception when duplicate_object or unique_violation then null; end $$")
    admin.execute(sql.SQL("create role {} login password 'right'").format(name))
    try:
        admin.execute(sql.SQL("grant password_users to {}").format(name))
        url = make_conninfo(database, user=name.as_string(None).strip('"'), password="wrong")
        for command in (("jobs",), ("sync",), ("work", "--drain")):
            status, sentence = said(url, *command)
            assert status == 3 and "password authentication failed" in sentence
    finally:
        admin.execute(sql.SQL("drop role {}").format(name))
    assert said(make_conninfo(database, user="no_such_role"))[0] == 3
    assert said(make_conninfo(database, dbname="no_such_database"))[0] == 3
    assert said("nonsense://")[0] == 3
    for command in (("jobs",), ("sync",), ("work",), ("stats",)):
        status, sentence = said(empty_database, *command)
        assert status == 3 and "run `rota migrate`" in sentence


def test_with_json_an_error_is_one_object_on_stderr(rota: CommandLine) -> None:
    for arguments, kind in (
        (("job", "1"), "JobNotFound"),
        (("job", "one"), "UsageError"),
        (("enqueue", "send_mail", "--payload", "[]"), "PayloadError"),
        (("sync", "--app", "nowhere:app"), "ConfigurationError"),
    ):
        ran = rota(*arguments, "--json")
        error = json.loads(ran.err)["error"]
        assert ran.out == "" and error["type"] == kind and error["message"]
    (rota.directory / "broken.py").write_text("1 / 0\n")
    ran = rota("sync", "--app", "broken:app", "--json")
    assert (ran.status, json.loads(ran.err)) == (1, {"error": {"type": "ZeroDivisionError", "message": "division by zero"}})
    assert "1 / 0" in rota("sync", "--app", "broken:app").err


def test_help_and_version_need_neither_an_app_nor_a_database(tmp_path: Path) -> None:
    rota = CommandLine(tmp_path)
    assert rota.ok("--version").out == f"{VERSION}\n"
    shown = rota("--help").out
    for command in ("migrate", "sync", "work", "enqueue", "jobs", "job", "stats", "queues", "workers", "types", "demo", "db"):
        assert f" {command} " in shown
    assert rota().status == 2 and rota("db").status == 2
    assert rota("nonsense").error == (2, "No such command 'nonsense'; see rota --help")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_early_is_no_error_worth_a_traceback(rota: CommandLine, connection: Connection) -> None:
    connection.execute("insert into rota.job (job_type) select repeat('x', 200) from generate_series(1, 2000)")
    with rota.start("jobs", "--limit", "2000") as process:
        assert process.stdout and process.stdout.readline()
        process.stdout.close()
        assert process.stderr and "Traceback" not in process.stderr.read()
