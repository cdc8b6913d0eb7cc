"""What the commands do, in processes of their own."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from psycopg.rows import TupleRow

from rota.cli import cli, run
from rota.store.migrate import definitions, migrations
from tests.store.planned import set_clock
from tests.support.cli import CommandLine, Ran
from tests.support.project import enter
from tests.support.rules import rule
from tests.support.wait import eventually

pytestmark = pytest.mark.system

Connection = psycopg.Connection[TupleRow]
NAMES = [migration.name for migration in migrations()]


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


@pytest.fixture
def here(shop: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, in the project: for commands of which there are many, and which end before they
    do anything."""
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)


# Schema


def test_migrate_makes_the_schema_once_and_check_names_what_is_missing(
    tmp_path: Path, empty_database: str
) -> None:
    rota = CommandLine(tmp_path)
    here = ("--url", empty_database, "--schema", "jobs")
    status, sentence = rota("migrate", "--check", *here).error
    assert status == 3 and "rota migrate" in sentence
    made = [definition.name for definition in definitions()]
    assert rota.ok("migrate", *here, "--payload-bytes-max", "2048", "--json").json == {
        "schema": "jobs", "applied": NAMES, "replaced": made, "newer": {},
    }  # fmt: skip
    assert rota.ok("migrate", *here).out == "schema jobs: up to date\n"
    assert rota.ok("migrate", "--check", *here, "--json").json == {
        "schema": "jobs",
        "applied": [],
        "replaced": [],
        "newer": {},
    }
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "update jobs.definition set hash = 'x', release = '99.0.0' where name = 'time_bucket'"
        )
        assert (
            rota.ok("migrate", *here).out
            == "schema jobs: kept time_bucket of the newer release 99.0.0\n"
        )
        connection.execute(
            "update jobs.definition set release = '0.0.1' where name = 'time_bucket'"
        )
        assert rota.ok("migrate", *here).out == "schema jobs: created or replaced time_bucket\n"
        connection.execute("alter function jobs.time_bucket(interval) volatile")
    status, sentence = rota("migrate", "--check", *here).error
    assert status == 3 and "changed since `rota migrate`: time_bucket." in sentence
    rota.ok("migrate", *here, "--keep-history", "30d", "--keep-dead", "1d12h")
    with psycopg.connect(empty_database) as connection:
        kept = {
            what: keep / timedelta(days=1)
            for what, keep in rows(connection, "select what, keep from jobs.retention")
        }
    assert kept == {
        "history": 30, "attempts": 90, "dead": 1.5, "actions": 90, "figures": 400, "effects": 90
    }  # fmt: skip
    assert rota("migrate", *here, "--keep-attempts", "23h").error == (
        2,
        "--keep-attempts must be at least 1 d, not '23h'",
    )
    assert rota("migrate", *here, "--check", "--keep-dead", "9d").error == (
        2,
        "--keep-dead changes the database; --sql and --check do not",
    )
    large = json.dumps({"text": "x" * 3_000})
    assert rota("enqueue", "any", "--force", *here, "--payload", large).error == (
        2,
        "job type 'any': payload: 3,012 bytes is over the limit of 2,048: "
        "store the data elsewhere and pass a reference, such as its id",
    )


def test_migrate_as_sql_needs_no_database_and_does_the_same(
    tmp_path: Path, empty_database: str
) -> None:
    printed = CommandLine(tmp_path, ROTA_SCHEMA="other").ok("migrate", "--sql").out
    with psycopg.connect(empty_database) as connection:
        connection.execute(printed.encode())
    assert (
        CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database, ROTA_SCHEMA="other")
        .ok("migrate", "--check")
        .status
        == 0
    )


def test_sync_declares_the_types_of_the_app_and_types_prints_their_retry_policies(
    rota: CommandLine,
) -> None:
    assert (
        rota.ok("types").out
        == "no job types declared; `rota sync` or the start of a worker declares them\n"
    )
    assert rota.ok("sync", "--json").json == {
        "schema": "rota",
        "declared": ["report", "send_mail"],
        "schedules": [],
    }
    report, send_mail = rota.ok("types", "--json").json["types"]
    assert report["retry_words"] == "1 min, 2 min, 3 min, dead after 6 min"
    assert (
        send_mail["queue"],
        send_mail["aliases"],
        send_mail["lease_s"],
        send_mail["release"],
    ) == ("email", ["mail"], 120.0, "shop-1")
    assert "1 min, 2 min, 3 min, dead after 6 min" in rota.ok("types").out


def test_the_help_of_every_command_is_whole_on_a_screen_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in _commands(typer.main.get_command(cli), ()):
        assert run([*path, "--help"]) == 0
        shown = capsys.readouterr().out
        said = " ".join(shown.replace("│", " ").split())
        assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown, path
        paragraphs = (command.help or "").split("\n\n")
        assert "\n" not in paragraphs[0], f"{path}: the list of commands breaks its line there"
        assert all(" ".join(paragraph.split()) in said for paragraph in paragraphs), path
        assert re.search(r"[<\[]\w+\|[^\]>\s]*\s", shown) is None, (
            f"{path}: choices are broken within a word"
        )
        assert all(
            option.hidden or option.opts[0] in shown
            for option in command.params
            if option.opts[0].startswith("-")
        ), path


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


# The App


@rule("M3")
def test_migrate_also_declares_what_the_app_declares(shop: Path, empty_database: str) -> None:
    rota = CommandLine(shop, ROTA_DATABASE_URL=empty_database)
    (shop / "twice.py").write_text(
        "import rota\na, b = rota.Jobs(), rota.Jobs()\napp = rota.App(jobs=[a, b])\n"
        "a.job('x')(lambda: None)\nb.job('x')(lambda: None)\n"
    )
    assert rota("migrate", "--app", "twice:app").status == 2
    assert rota("migrate", "--check").status == 3, "nothing was done"
    facts = rota.ok("migrate", "--json").json
    assert (facts["applied"], facts["declared"]) == (NAMES, ["report", "send_mail"])
    migrated, declared = rota.ok("migrate").out.splitlines()
    assert migrated == "schema rota: up to date"
    assert declared.startswith("schema rota: declared job types (2): report, send_mail")
    assert "send_mail" in rota.ok("types").out
    here = ("--url", empty_database, "--schema", "jobs")
    assert "declared" not in rota.ok("migrate", *here, "--json").json
    assert (
        rota.ok("migrate", *here, "--app", "shop:app")
        .out.splitlines()[1]
        .startswith("schema jobs: declared job types (2)")
    )


def test_the_app_comes_from_the_option_the_environment_or_the_nearest_pyproject(
    shop: Path, database: str
) -> None:
    below = shop / "src" / "deeper"
    below.mkdir(parents=True)
    (shop / "src" / "pyproject.toml").write_text("[project]\nname = 'nothing about rota'\n")
    (below / "mine.py").write_text("import rota\napp = rota.App(schema='mine')\nother = 1\n")
    rota = CommandLine(below, ROTA_DATABASE_URL=database)
    assert rota.ok("sync", "--json").json["declared"] == ["report", "send_mail"]
    assert (
        rota("sync", "--app", "mine:app")
        .error[1]
        .endswith('(relation "mine.migration" does not exist)')
    )
    assert rota("sync", "--app", "mine:other").error == (3, "'mine:other' is a int, not a rota.App")
    named = CommandLine(below, ROTA_DATABASE_URL=database, ROTA_APP="nowhere:app")
    assert named("work", "--drain").error == (
        3,
        "'nowhere:app': no module 'nowhere' on sys.path (which begins with the current directory)",
    )


@rule("M2", "M84")
def test_a_module_that_ends_the_program_when_it_is_imported_is_no_good_run(
    rota: CommandLine, shop: Path
) -> None:
    for ends in ("sys.exit()", "sys.exit('bye\\nbye')"):
        (shop / "script.py").write_text(f"import sys\nimport rota\napp = rota.App()\n{ends}\n")
        status, sentence = rota("work", "--drain", "--app", "script:app").error
        assert (
            status == 3
            and "importing module 'script' ended the program" in sentence
            and "__main__" in sentence
        )
    logged = rota("work", "--drain", "--app", "script:app", "--log-format", "json")
    assert (logged.status, json.loads(logged.err)["level"]) == (3, "error")
    assert rota("sync", "--app", "script:app", "--json").status == 3


def test_without_an_app_the_commands_that_need_one_say_how_to_name_it_and_the_others_work(
    tmp_path: Path, database: str
) -> None:
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    for command in (("sync",), ("work", "--drain"), ("enqueue", "send_mail")):
        status, sentence = rota(*command).error
        assert status == 3 and "--app module:attribute" in sentence
    assert rota.ok("jobs", "--json").json == {"jobs": []}


# Enqueue


@rule("M51")
def test_enqueue_makes_the_key_of_the_type_and_does_to_its_holder_what_it_is_told(
    rota: CommandLine, shop: Path, connection: Connection
) -> None:
    with (shop / "shop.py").open("a") as file:
        file.write(
            "unique = rota.Unique(lambda doc: f'index:{doc}', on_duplicate='replace')\n"
            "@app.job('index', unique=unique)\n"
            "def index(doc: int, text: str) -> None: ...\n"
        )

    def enqueue(text: str, *options: str) -> Ran:
        payload = json.dumps({"doc": 7, "text": text})
        return rota("enqueue", "index", "--payload", payload, *options)

    rota.ok("sync")
    assert enqueue("a").out == "job 1 queued\n"
    assert enqueue("b").out == "not inserted: job 1 (queued) was replaced\n"
    later = ("--on-duplicate", "postpone", "--delay", "1h")
    assert enqueue("c", *later).out == "not inserted: job 1 (queued) was postponed\n"
    taken = enqueue("d", "--on-duplicate", "raise")
    assert taken.status == 1 and "job 1 (queued) has the idempotency key 'index:7'" in taken.err
    assert rows(connection, "select payload, idempotency_key from rota.job") == [
        ({"doc": 7, "text": "b"}, "index:7")
    ]
    (shop / "shop.py").write_text("import rota\napp = rota.App()\n")  # an older release
    refused = rota("enqueue", "index", "--force")
    assert refused.status == 2 and "Traceback" not in refused.err
    assert "--key is missing: job type 'index' declares one, made of doc" in refused.err


@rule("M51")
def test_enqueue_inserts_a_checked_job_and_says_when_its_key_is_taken(
    rota: CommandLine, connection: Connection
) -> None:
    options = (
        "--priority",
        "-3",
        "--queue",
        "slow",
        "--key",
        "once",
        "--run-at",
        "2037-01-01T00:00:00+01:00",
    )
    first = rota.ok("enqueue", "send_mail", "--payload", '{"user_id": 7}', *options, "--json").json
    assert first == {"id": first["id"], "created": True, "status": "queued", "change": None}
    assert rows(
        connection, "select queue, priority, run_at, payload, idempotency_key from rota.job"
    ) == [("slow", -3, datetime.fromisoformat("2036-12-31T23:00:00+00:00"), {"user_id": 7}, "once")]
    again = rota.ok("enqueue", "mail", "--payload", '{"user_id": 8}', "--key", "once")
    assert again.out == f"not inserted: job {first['id']} (queued) has this idempotency key\n"
    more = (
        "--delay",
        "1h",
        "--max-attempts",
        "2",
        "--expires",
        "1d",
        "--meta",
        '{"from": "shell"}',
        "--timeout",
        "90s",
    )
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', *more)
    rota.ok("enqueue", "other", "--force", *more)
    assert (
        rows(
            connection,
            "select max_attempts, expires_at - run_at, meta, timeout from rota.job "
            "where max_attempts is not null",
        )
        == [(2, timedelta(days=1), {"from": "shell"}, timedelta(seconds=90))] * 2
    )
    [(newest,)] = rows(connection, "select max(id)::text from rota.job")
    assert re.search(r"^timeout +1 min 30 s *$", rota.ok("job", newest).out, re.MULTILINE)
    assert rows(
        connection, "select job_type, run_at > now() + '50 min' from rota.job order by id"
    ) == [
        ("send_mail", True),
        ("report", True),
        ("other", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["report", "--payload", '{"day": '],
            "job type 'report': payload: not valid JSON: Input data was truncated",
        ),
        (["report", "--payload", '["2026-01-14"]'], "must be a JSON object"),
        (["report", "--payload", '{"day": "14 January"}'], "argument 'day'"),
        (
            ["report", "--payload", '{"day": "2026-01-14", "zone": 1}'],
            "argument 'zone': the handler takes no such argument",
        ),
        (["report"], "argument 'day': missing"),
        (
            ["send_mail", "--payload", '{"user_id": 1}', "--run-at", "2037-01-01T00:00:00"],
            "--run-at needs a UTC offset",
        ),
        (
            ["send_mail", "--payload", '{"user_id": 1}', "--run-at", "tomorrow"],
            "--run-at must be a date and time with a UTC offset",
        ),
        (
            ["send_mail", "--payload", '{"user_id": 1}', "--delay", "-5m"],
            "delay must not be negative",
        ),
        (
            ["send_mail", "--payload", '{"user_id": 1}', "--priority", "101"],
            "priority must be a whole number from -100 to 100",
        ),
        (
            ["send_mial", "--payload", "{}"],
            "unknown job type 'send_mial'; did you mean 'send_mail'? "
            "(--force inserts it without a check)",
        ),
        (["other", "--force", "--payload", '{"text": "\\u0000"}'], "NUL"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_sentence_and_not_inserted(
    here: None,
    capsys: pytest.CaptureFixture[str],
    connection: Connection,
    arguments: list[str],
    sentence: str,
) -> None:
    assert run(["enqueue", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("rota: ") and err.count("\n") == 1 and sentence in err
    assert rows(connection, "select from rota.job") == []


@rule("M15")
def test_force_inserts_a_type_that_the_app_does_not_have_as_the_database_declares_it(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job_type (name, queue, priority) values ('of_another_app', 'theirs', 9)"
    )
    assert rota.ok(
        "enqueue", "of_another_app", "--force", "--payload", '{"a": [1, null]}'
    ).out.endswith("queued\n")
    assert rota.ok("enqueue", "of_nobody", "--force", "--json").json["created"] is True
    assert rows(connection, "select queue, priority, payload from rota.job order by id") == [
        ("theirs", 9, {"a": [1, None]}),
        ("default", 0, {}),
    ]


# Work


@rule("M44", "M87")
def test_cancel_prints_the_answer_for_each_job_and_exits_1_when_one_is_refused(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) select 't' from generate_series(1, 5)")
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'w', "
        "locked_until = now() + interval '1 min' where id = 2"
    )
    connection.execute("update rota.job set status = 'dead' where id = 3")
    done = rota.ok("cancel", "2", "1", "--why", "not wanted", "--json").json
    assert done == {
        "jobs": [
            {"id": 1, "answer": "cancelled", "status": "cancelled"},
            {"id": 2, "answer": "requested", "status": "running"},
        ]
    }
    assert rows(
        connection,
        "select id, cancel_reason from rota.jobs where cancel_reason is not null order by id",
    ) == [
        (1, "not wanted"),
        (2, "not wanted"),
    ]
    assert [line.split() for line in rota.ok("cancel", "4").out.splitlines()] == [
        ["id", "answer", "status"],
        ["4", "cancelled", "cancelled"],
    ]
    dead = (
        "job 3 is dead, not queued, waiting, running or failed; nothing was changed; retry "
        "or archive a dead job instead"
    )
    assert rota("cancel", "3").error == (1, dead)
    assert rota("cancel", "4711").error == (
        2,
        "no job 4711: it never existed, retention has deleted it, "
        "or its transaction has not committed yet",
    )
    mixed = rota("cancel", "3", "5", "--json")
    assert (mixed.status, [one["answer"] for one in mixed.json["jobs"]]) == (
        1,
        ["refused", "cancelled"],
    )
    assert json.loads(mixed.err) == {"error": {"type": "WrongStatus", "message": dead}}


@pytest.mark.slow
@rule("M44", "M87")
def test_an_action_by_a_filter_says_how_many_and_asks_without_yes(
    rota: CommandLine, connection: Connection
) -> None:
    died = (
        "insert into rota.job (job_type, payload, status, failed_at, error_type) "
        "select 'report', '{}', 'dead', now(), 'E' from generate_series(1, 22)"
    )
    connection.execute(died.encode())
    status, said = rota("retry", "--type", "report").error
    assert status == 2 and "stdin is not a terminal: add --yes" in said
    assert rows(connection, "select count(*) from rota.action") == [(0,)]
    few = rota.ok(
        "retry",
        "--error-type",
        "E",
        "--limit",
        "2",
        "--yes",
        "--why",
        "again",
        "--by",
        "ann",
        "--json",
    )
    assert "2 jobs to be retried (limited by --limit; there may be more)" in few.err
    assert few.json == {
        "jobs": [
            {"id": id_, "answer": "done", "status": "dead", "new_id": id_ + 22} for id_ in (1, 2)
        ]
    }
    assert (
        rows(connection, "select verb, by, why from rota.action")
        == [("requeue", "ann", "again")] * 2
    )
    assert (
        rota.ok(
            "retry", "--error-type", "E", "--since", "1h", "--limit", "1", "--yes", "--json"
        ).json["jobs"][0]["id"]
        == 3
    )
    assert rota.ok(
        "retry", "--error-type", "E", "--since", "2037-01-14 09:00", "--yes", "--json"
    ).json == {"jobs": []}
    moved = ("--to-queue", "night", "--delay", "1h", "--priority", "-5")
    assert rota("reschedule", "5", "--to-queue", "night").error == (
        1,
        "job 5 is dead, not queued, waiting or failed; nothing was changed; "
        "retry or archive a dead job instead",
    )
    why = ("--why", "not by day", "--by", "ann")
    assert "done" in rota.ok("reschedule", "23", "24", *moved, *why).out
    assert rows(
        connection,
        "select distinct queue, priority, run_at > now() + interval '59 min' from rota.job "
        "where id in (23, 24)",
    ) == [("night", -5, True)]
    assert "queue default → night, by ann: not by day" in rota.ok("job", "23").out
    some = rota.ok("reschedule", "--queue", "night", "--run-at", "2037-01-01T00:00:00Z", "--yes")
    assert some.err == "2 jobs to be rescheduled\n"
    assert rota("reschedule", "23").error == (
        2, "reschedule: give at least one of --run-at, --delay, --priority and --to-queue",
    )  # fmt: skip
    nothing = rota.ok("retry", "--type", "report", "--status", "failed", "--yes")
    assert (nothing.out, nothing.err) == ("no jobs found\n", "0 jobs to be retried\n")
    for wrong in ("succeeded", "lost"):  # one that the action refuses, and one that is none
        assert rota("retry", "--status", wrong, "--yes").error == (
            2,
            f"--status must be one of queued, running, failed, dead, not {wrong!r}",
        )
    mismatch = rota("retry", "4", "--new-payload", '{"dya": 1}').error
    assert (
        mismatch[0] == 2
        and "the handler takes no such argument; did you mean 'day'?" in mismatch[1]
    )
    rota.ok("retry", "4", "--new-payload", '{"day": "2026-01-14"}')
    assert rows(connection, "select payload, origin_id from rota.job where id = 26") == [
        ({"day": "2026-01-14"}, 4)
    ]
    assert rota("archive", "--type", "report", "--yes").error == (
        2,
        "--why is required: it records why these jobs are archived",
    )
    many = rota.ok(
        "archive", "--type", "report", "--since", "2026-01-01T00:00:00Z", "--yes", "--why", "x"
    )
    assert many.err == "18 jobs to be archived\n"
    again = rota("retry", "3", "4", "--json")
    assert again.status == 1 and "already archived" in again.err
    assert [(one["id"], one["answer"]) for one in again.json["jobs"]] == [
        (3, "refused"),
        (4, "refused"),
    ]
    table = rota("retry", "3", "99999")
    assert table.status == 1 and "refused" in table.out and "not found" in table.out
    assert rota("retry", "3").out == ""
    assert (
        rota("retry", "--type", "report", "--since", "yesterday")
        .error[1]
        .startswith("--since must be a time such as 2026-01-14T09:30 or an age")
    )
    assert (
        rota("retry", "3", "--new-payload", "[]")
        .error[1]
        .startswith("--new-payload for job 3: must be a JSON object")
    )
    assert "archived" in rota.ok("job", "3").out


@rule("M44", "M87")
def test_what_the_database_refuses_is_listed_beside_what_was_done(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, status, failed_at) select 't', 'dead', now() "
        "from generate_series(1, 3)"
    )
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ "
        "begin raise exception 'not this one'; end $$;"
        "create trigger refuse before delete on rota.job for each row when (old.id > 1) "
        "execute function refuse()"
    )
    said = rota("archive", "1", "2", "3", "--why", "x", "--json")
    assert (
        said.status == 1 and "job 2: the database refuses: RaiseException: not this one" in said.err
    )
    assert [(one["id"], one["answer"]) for one in said.json["jobs"]] == [
        (1, "done"),
        (2, "database refuses"),
        (3, "database refuses"),
    ]
    assert [
        line.split()[:2] for line in rota("archive", "2", "3", "--why", "x").out.splitlines()[1:]
    ] == [
        ["2", "database"],
        ["3", "database"],
    ]


@rule("M72", "M87")
def test_a_job_shows_its_progress_and_who_wanted_it_stopped(
    rota: CommandLine, connection: Connection
) -> None:
    progress = '{"done": 1234, "total": 5000, "note": "pages", "at": "2026-01-14T10:00:00+00:00"}'
    set_clock(connection, "2026-01-14 10:00:30")
    connection.execute("insert into rota.job (job_type, progress) values ('t', %s)", [progress])
    rota.ok("cancel", "1", "--why", "not wanted")
    shown = rota.ok("job", "1").out
    assert "1,234 of 5,000, 30 s ago: pages" in shown and "not wanted" in shown
    assert "1,234 of 5,000, 2026-01-14 10:00:00Z: pages" in rota.ok("job", "1", "--utc").out
    assert rota.ok("job", "1", "--json").json["job"]["progress"] == json.loads(progress) | {
        "at": "2026-01-14T10:00:00Z"
    }


@rule("M80")
@rule("M84")
def test_a_drain_logs_each_step_ends_with_its_report_and_exits_0_also_when_jobs_failed(
    rota: CommandLine,
) -> None:
    for number in ("1", "2"):
        rota.ok("enqueue", "send_mail", "--payload", f'{{"user_id": {number}}}')
    failed = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json").json["id"]
    ran = rota.ok("work", "--drain", "--for", "50s")
    assert ran.out == "claimed 3, succeeded 2, failed 1, dead 0, oldest due: none\n"
    assert sum("send_mail attempt 1: succeeded in" in line for line in ran.err.splitlines()) == 2
    [warning] = [
        line
        for line in ran.err.splitlines()
        if f"job {failed} report attempt 1: failed, retry in" in line
    ]
    assert "WARNING" in warning and "ValueError: no data for 2026-01-14" in warning
    assert rota("work", "--drain", "--for", "soon").error[0] == 2
    quiet = rota.ok("work", "--drain", "--queue", "email=2", "--log-level", "warning", "--json")
    assert quiet.json == {
        "claimed": 0,
        "succeeded": 0,
        "failed": 0,
        "dead": 0,
        "oldest_due": None,
        "paused": [],
    }
    # Else it would be told of its beginning and end. A busy machine may keep the loop from turning
    # for a second, which is a warning.
    assert [line for line in quiet.err.splitlines() if "the event loop for" not in line] == []


@rule("M83")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_says_so_and_exits_0(
    rota: CommandLine, connection: Connection, number: signal.Signals
) -> None:
    with rota.start("work", "--concurrency", "3", "--grace", "5s") as process:
        eventually(
            lambda: rows(connection, "select from rota.worker where stopped_at is null"),
            what="the worker started",
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1].endswith("stopped")
    assert rows(connection, "select stopped_at is not null from rota.worker") == [(True,)]


@rule("M10", "M51", "M87")
def test_a_job_is_moved_and_cancelled_by_its_key(rota: CommandLine, connection: Connection) -> None:
    for job_type in ("a", "b"):
        connection.execute(
            "insert into rota.job (job_type, idempotency_key) values (%s, 'user:1')", [job_type]
        )
    assert rota("cancel", "--key", "user:1").error == (
        2, "jobs of several types hold the key 'user:1': a, b; name one of them"
    )  # fmt: skip
    moved = rota.ok("reschedule", "--key", "user:1", "--type", "a", "--delay", "3d", "--json")
    assert moved.json == {"jobs": [{"id": 1, "answer": "done", "status": "queued"}]}
    said = rota.ok("cancel", "--key", "user:1", "--type", "a", "--why", "acted first")
    assert "cancelled" in said.out
    assert rows(connection, "select id, cancel_reason from rota.job_history") == [
        (1, "acted first")
    ]
    assert rota("cancel", "--key", "user:1", "--type", "a").error == (
        2, "no job of type 'a' holds the idempotency key 'user:1'"
    )  # fmt: skip
    assert rota("cancel", "--key", "user:1", "2").error == (2, "give ids or a filter, not both")
    beside = rota("cancel", "--key", "user:1", "--queue", "default")
    assert "cancel with a filter asks for confirmation" in beside.error[1]


@rule("M85", "M87")
def test_jobs_are_listed_and_acted_on_by_a_part_of_payload_or_meta(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload, meta) values "
        """('t', '{"user_id": 42, "to": {"name": "a=b", "id": 7}}', '{"tenant": "acme"}'), """
        """('t', '{"user_id": "42"}', '{"tenant": "acme"}'), ('t', '{"user_id": 43}', null)"""
    )

    def listed(*filters: str) -> list[int]:
        return [job["id"] for job in rota.ok("jobs", *filters, "--json").json["jobs"]]

    assert listed("--payload", "user_id=42") == [1]
    assert listed("--payload", 'user_id="42"') == [2]
    assert listed("--payload", 'to={"name": "a=b"}', "--payload", "user_id=42") == [1]
    assert listed("--meta", "tenant=acme") == [2, 1]
    assert listed("--meta", "tenant=acme", "--payload", "user_id=43") == []
    for wrong in (["user_id"], ["user_id=1", "--payload", "user_id=2"]):
        status, error = rota("cancel", "--yes", "--payload", *wrong).error
        assert (status, error[:48]) == (2, "--payload must be NAME=VALUE, each name once, no")
    rota.ok("discard", "--payload", "user_id=43", "--yes")
    rota.ok("retry", "--payload", "user_id=43", "--yes")
    rota.ok("cancel", "--meta", "tenant=acme", "--payload", "user_id=42", "--yes")
    assert rows(connection, "select id, status from rota.job order by id") == [
        (2, "queued"),
        (4, "queued"),
    ]
