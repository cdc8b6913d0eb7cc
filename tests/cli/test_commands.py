"""What the commands do."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store.migrate import definitions, migrations
from tests.cli.here import Here
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]
NAMES = [migration.name for migration in migrations()]


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


# Schema


def test_migrate_makes_the_schema_once_and_check_names_what_is_missing(
    tmp_path: Path, empty_database: str
) -> None:
    rota = Here(tmp_path)
    here = ("--url", empty_database, "--schema", "jobs")
    status, sentence = rota("migrate", "--check", *here).error
    assert status == 3 and "rota migrate" in sentence
    made = [definition.name for definition in definitions()]
    assert rota.ok("migrate", *here, "--payload-bytes-max", "2048", "--json").json == {
        "schema": "jobs", "applied": NAMES, "replaced": made, "newer": {},
    }  # fmt: skip
    assert rota.ok("migrate", *here).out == "schema jobs: up to date\n"
    nothing = {"schema": "jobs", "applied": [], "replaced": [], "newer": {}}
    assert rota.ok("migrate", "--check", *here, "--json").json == nothing
    with psycopg.connect(empty_database, autocommit=True) as connection:
        of_bucket = "where name = 'time_bucket'"
        connection.execute(f"update jobs.definition set hash = 'x', release = '99.0.0' {of_bucket}")
        assert "kept time_bucket of the newer release 99.0.0" in rota.ok("migrate", *here).out
        connection.execute(f"update jobs.definition set release = '0.0.1' {of_bucket}")
        assert rota.ok("migrate", *here).out == "schema jobs: created or replaced time_bucket\n"
        connection.execute("alter function jobs.time_bucket(interval) volatile")
        status, sentence = rota("migrate", "--check", *here).error
        assert status == 3 and "changed since `rota migrate`: time_bucket." in sentence
        assert rota("migrate", *here).error == (status, sentence), "it also refuses to go on"
        restored = rota.ok(
            "migrate", *here, "--restore", "--keep-history", "30d", "--keep-dead", "1d12h"
        )
        assert restored.out == "schema jobs: created or replaced time_bucket\n"
        kept = dict(rows(connection, "select what, keep from jobs.retention"))
        assert (kept["history"], kept["dead"]) == (timedelta(days=30), timedelta(days=1.5))
    for wrong, said in (
        (("--keep-attempts", "23h"), "--keep-attempts must be at least 1 d, not '23h'"),
        (("--check", "--keep-dead", "9d"), "--keep-dead changes the database; --sql and --check"),
    ):
        status, sentence = rota("migrate", *here, *wrong).error
        assert status == 2 and sentence.startswith(said)
    large = json.dumps({"text": "x" * 3_000})
    status, sentence = rota("enqueue", "any", "--force", *here, "--payload", large).error
    assert status == 2 and "3,012 bytes is over the limit of 2,048" in sentence


def test_sync_declares_the_types_of_the_app_and_types_prints_their_retry_policies(
    rota: Here,
) -> None:
    assert rota.ok("types").out.startswith("no job types declared; `rota sync` or the start of a")
    assert rota.ok("sync", "--json").json["declared"] == ["report", "send_mail"]
    report, send_mail = rota.ok("types", "--json").json["types"]
    assert report["retry_words"] == "1 min, 2 min, 3 min, dead after 6 min"
    assert (send_mail["queue"], send_mail["aliases"]) == ("email", ["mail"])
    assert report["retry_words"] in rota.ok("types").out


# The App


@rule("M3")
def test_migrate_also_declares_what_the_app_declares(shop: Path, empty_database: str) -> None:
    rota = Here(shop, ROTA_DATABASE_URL=empty_database)
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
    here = ("--url", empty_database, "--schema", "jobs")
    assert "declared" not in rota.ok("migrate", *here, "--json").json, "whose App it is"
    declared = rota.ok("migrate", *here, "--app", "shop:app").out.splitlines()[1]
    assert declared.startswith("schema jobs: declared job types (2)")


def test_the_app_comes_from_the_option_the_environment_or_the_nearest_pyproject(
    shop: Path, database: str
) -> None:
    below = shop / "src" / "deeper"
    below.mkdir(parents=True)
    (shop / "src" / "pyproject.toml").write_text("[project]\nname = 'nothing about rota'\n")
    (below / "mine.py").write_text("import rota\napp = rota.App(schema='mine')\nother = 1\n")
    rota = Here(below, ROTA_DATABASE_URL=database)
    assert rota.ok("sync", "--json").json["declared"] == ["report", "send_mail"]
    assert 'relation "mine.migration" does not exist' in rota("sync", "--app", "mine:app").err
    assert rota("sync", "--app", "mine:other").error == (3, "'mine:other' is a int, not a rota.App")
    rota.environment["ROTA_APP"] = "nowhere:app"
    status, sentence = rota("work", "--drain").error
    assert status == 3 and sentence.startswith("'nowhere:app': no module 'nowhere' on sys.path")


@rule("M2", "M84")
def test_a_module_that_ends_the_program_when_it_is_imported_is_no_good_run(
    rota: Here, shop: Path
) -> None:
    for ends in ("sys.exit()", "sys.exit('bye\\nbye')"):
        (shop / "script.py").write_text(f"import sys\nimport rota\napp = rota.App()\n{ends}\n")
        status, sentence = rota("work", "--drain", "--app", "script:app").error
        assert (
            status == 3
            and "importing module 'script' ended the program" in sentence
            and "__main__" in sentence
        )
    logged = rota.apart("work", "--drain", "--app", "script:app", "--log-format", "json")
    assert (logged.status, json.loads(logged.err)["level"]) == (3, "error")


def test_without_an_app_the_commands_that_need_one_say_how_to_name_it_and_the_others_work(
    tmp_path: Path, database: str
) -> None:
    rota = Here(tmp_path, ROTA_DATABASE_URL=database)
    for command in (("sync",), ("work", "--drain"), ("enqueue", "send_mail")):
        status, sentence = rota(*command).error
        assert status == 3 and "--app module:attribute" in sentence
    assert rota.ok("jobs", "--json").json == {"jobs": []}


# Enqueue


@rule("M51")
def test_enqueue_inserts_a_checked_job_and_says_when_its_key_is_taken(
    rota: Here, connection: Connection
) -> None:
    options = ("--priority", "-3", "--queue", "slow", "--key", "once")
    at = ("--run-at", "2037-01-01T00:00:00+01:00")
    enqueued = rota.ok(
        "enqueue", "send_mail", "--payload", '{"user_id": 7}', *options, *at, "--json"
    )
    first = enqueued.json
    assert first == {"id": first["id"], "created": True, "status": "queued", "change": None}
    assert rows(
        connection, "select queue, priority, run_at, payload, idempotency_key from rota.job"
    ) == [("slow", -3, datetime.fromisoformat("2036-12-31T23:00:00+00:00"), {"user_id": 7}, "once")]
    again = rota.ok("enqueue", "mail", "--payload", '{"user_id": 8}', "--key", "once")
    assert again.out == f"not inserted: job {first['id']} (queued) has this idempotency key\n"
    more = ("--delay", "1h", "--max-attempts", "2", "--expires", "1d", "--timeout", "90s")
    meta = ("--meta", '{"from": "shell"}')
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', *more, *meta)
    rota.ok("enqueue", "other", "--force", *more, *meta)
    assert rows(
        connection,
        "select job_type, run_at > now() + '50 min', max_attempts, expires_at - run_at, meta, "
        "timeout from rota.job where max_attempts is not null order by id",
    ) == [
        (name, True, 2, timedelta(days=1), {"from": "shell"}, timedelta(seconds=90))
        for name in ("report", "other")
    ]


def test_a_job_that_cannot_be_is_refused_in_one_sentence_and_not_inserted(
    rota: Here, connection: Connection
) -> None:
    mail = ("send_mail", "--payload", '{"user_id": 1}')
    for arguments, said in (
        (("report", "--payload", '{"day": '), "payload: not valid JSON"),
        (("report", "--payload", '["2026-01-14"]'), "must be a JSON object"),
        (("report", "--payload", '{"day": "14 January"}'), "argument 'day'"),
        (("report", "--payload", '{"day": "2026-01-14", "zone": 1}'), "argument 'zone'"),
        (("report",), "argument 'day': missing"),
        ((*mail, "--run-at", "2037-01-01T00:00:00"), "--run-at needs a UTC offset"),
        ((*mail, "--delay", "-5m"), "delay must not be negative"),
        ((*mail, "--priority", "101"), "priority must be a whole number from -100 to 100"),
        (("send_mial", "--payload", "{}"), "unknown job type 'send_mial'; did you mean 'send_mai"),
        (("other", "--force", "--payload", '{"text": "\\u0000"}'), "NUL"),
    ):
        status, sentence = rota("enqueue", *arguments).error
        assert status == 2 and said in sentence, arguments
    assert rows(connection, "select from rota.job") == []


# Work


@rule("M43")
def test_a_job_shows_its_whole_timeline(rota: Here) -> None:
    made = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json")
    failed = str(made.json["id"])
    rota.ok("work", "--drain")
    timeline = rota.ok("job", failed, "--json").json
    job, [attempt] = timeline["job"], timeline["attempts"]
    assert (job["status"], job["attempts"], job["max_attempts"]) == ("failed", 1, 4)
    assert (attempt["error_type"], attempt["message"]) == ("ValueError", "no data for 2026-01-14")
    assert (attempt["release"], attempt["next_run_at"]) == ("shop-1", job["run_at"])
    short = rota.ok("job", failed)
    assert "raise ValueError" not in short.out and "--verbose" in short.err
    shown = rota.ok("job", failed, "--verbose").out
    assert attempt["worker"] in shown and 'raise ValueError(f"no data for {day}")' in shown
    assert "no job 12345: it never existed" in rota("job", "12345").error[1]


@rule("M44", "M87")
def test_cancel_prints_the_answer_for_each_job_and_exits_1_when_one_is_refused(
    rota: Here, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) select 't' from generate_series(1, 5)")
    connection.execute(
        "update rota.job set status = 'running', claims = claims + 1, locked_by = 'w', "
        "locked_until = now() + interval '1 min' where id = 2"
    )
    connection.execute("update rota.job set status = 'dead' where id = 3")
    assert rota.ok("cancel", "2", "1", "--why", "not wanted", "--json").json == {
        "jobs": [
            {"id": 1, "answer": "cancelled", "status": "cancelled"},
            {"id": 2, "answer": "requested", "status": "running"},
        ]
    }
    asked = "select id, cancel_reason from rota.jobs where cancel_reason is not null order by id"
    assert rows(connection, asked) == [(1, "not wanted"), (2, "not wanted")]
    _, line = rota.ok("cancel", "4").out.splitlines()
    assert line.split() == ["4", "cancelled", "cancelled"]
    status, dead = rota("cancel", "3").error
    assert status == 1 and dead.startswith("job 3 is dead, not queued, waiting, running or failed;")
    status, sentence = rota("cancel", "4711").error
    assert status == 2 and sentence.startswith("no job 4711: it never existed, retention has")
    mixed = rota("cancel", "3", "5", "--json")
    assert mixed.status == 1
    assert [job["answer"] for job in mixed.json["jobs"]] == ["refused", "cancelled"]
    assert json.loads(mixed.err) == {"error": {"type": "WrongStatus", "message": dead}}


DEAD = (
    "insert into rota.job (job_type, payload, status, failed_at, error_type) "
    "select 'report', '{}', 'dead', now(), 'E' from generate_series(1, 22)"
)


@rule("M44", "M87")
def test_an_action_by_a_filter_says_how_many_and_asks_without_yes(
    rota: Here, connection: Connection
) -> None:
    connection.execute(DEAD)
    for command in (("retry",), ("archive", "--why", "x"), ("cancel",), ("discard",)):
        status, said = rota(*command, "--type", "report").error
        assert status == 2 and "stdin is not a terminal: add --yes" in said, command
    assert rows(connection, "select count(*) from rota.action") == [(0,)]
    by_ann = ("--yes", "--why", "again", "--by", "ann")
    few = rota.ok("retry", "--error-type", "E", "--limit", "2", *by_ann, "--json")
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
    later = ("retry", "--error-type", "E", "--since", "2037-01-14 09:00", "--yes", "--json")
    assert rota.ok(*later).json == {"jobs": []}
    nothing = rota.ok("retry", "--type", "report", "--status", "failed", "--yes")
    assert (nothing.out, nothing.err) == ("no jobs found\n", "0 jobs to be retried\n")
    connection.execute("select rota.worker_declare('reports')")
    mistyped = rota.ok("jobs", "--type", "repotrs", "--status", "failed", "--json")
    assert mistyped.json == {"jobs": []}
    assert mistyped.err == "no job type 'repotrs' is declared; did you mean 'reports'?\n"
    for wrong in ("succeeded", "lost"):  # one that the action refuses, and one that is none
        assert "--status must be one of" in rota("retry", "--status", wrong, "--yes").error[1]
    assert "--why is required" in rota("archive", "--type", "report", "--yes").error[1]
    since = ("--since", "2026-01-01T00:00:00Z")
    many = rota.ok("archive", "--type", "report", *since, "--yes", "--why", "x")
    assert many.err == "20 jobs to be archived\n"
    again = rota("retry", "3", "4", "--json")
    assert again.status == 1 and "already archived" in again.err
    assert [(job["id"], job["answer"]) for job in again.json["jobs"]] == [
        (3, "refused"),
        (4, "refused"),
    ]
    table = rota("retry", "3", "99999")
    assert table.status == 1 and "refused" in table.out and "not found" in table.out
    assert "archived" in rota.ok("job", "3").out


@rule("M44", "M87")
def test_a_dead_job_is_retried_with_another_payload_and_a_queued_one_is_moved(
    rota: Here, connection: Connection
) -> None:
    connection.execute(DEAD)
    status, sentence = rota("reschedule", "5", "--to-queue", "night").error
    assert status == 1 and sentence.startswith("job 5 is dead, not queued, waiting or failed;")
    connection.execute("insert into rota.job (job_type) values ('report'), ('report')")
    moved = ("--to-queue", "night", "--delay", "1h", "--priority", "-5")
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
    assert "give at least one of --run-at, --delay" in rota("reschedule", "23").error[1]
    status, sentence = rota("retry", "4", "--new-payload", '{"dya": 1}').error
    assert status == 2 and "no such argument; did you mean 'day'?" in sentence
    assert "must be a JSON object" in rota("retry", "3", "--new-payload", "[]").error[1]
    rota.ok("retry", "4", "--new-payload", '{"day": "2026-01-14"}')
    assert rows(connection, "select payload, origin_id from rota.job where id = 25") == [
        ({"day": "2026-01-14"}, 4)
    ]


@rule("M44", "M87")
def test_what_the_database_refuses_is_listed_beside_what_was_done(
    rota: Here, connection: Connection
) -> None:
    connection.execute(DEAD)
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ "
        "begin raise exception 'not this one'; end $$;"
        "create trigger refuse before delete on rota.job for each row when (old.id > 1) "
        "execute function refuse()"
    )
    said = rota("archive", "1", "2", "3", "--why", "x", "--json")
    why = "job 2: the database refuses: RaiseException: not this one"
    assert said.status == 1 and why in said.err
    assert [job["answer"] for job in said.json["jobs"]] == ["done", *["database refuses"] * 2]
    lines = rota("archive", "2", "3", "--why", "x").out.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["2", "database"], ["3", "database"]]


@rule("M80", "M84")
def test_a_drain_logs_each_step_ends_with_its_report_and_exits_0_also_when_jobs_failed(
    rota: Here,
) -> None:
    for number in ("1", "2"):
        rota.ok("enqueue", "send_mail", "--payload", f'{{"user_id": {number}}}')
    failed = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json").json["id"]
    ran = rota.apart("work", "--drain", "--for", "50s")
    assert ran.status == 0
    assert ran.out == "claimed 3, succeeded 2, failed 1, dead 0, oldest due: none\n"
    assert sum("send_mail attempt 1: succeeded in" in line for line in ran.err.splitlines()) == 2
    [warning] = [
        line
        for line in ran.err.splitlines()
        if f"job {failed} report attempt 1: failed, retry in" in line
    ]
    assert "WARNING" in warning and "ValueError: no data for 2026-01-14" in warning
    options = ("--queue", "email=2", "--log-level", "warning", "--json")
    quiet = rota.apart("work", "--drain", *options)
    assert (quiet.status, quiet.json["claimed"]) == (0, 0)
    # Else it would be told of its beginning and end. A busy machine may keep the loop from turning
    # for a second, which is a warning.
    assert [line for line in quiet.err.splitlines() if "the event loop for" not in line] == []


@rule("M83")
@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_says_so_and_exits_0(
    rota: Here, connection: Connection, number: signal.Signals
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
def test_a_job_is_moved_and_cancelled_by_its_key(rota: Here, connection: Connection) -> None:
    connection.execute(
        "insert into rota.job (job_type, idempotency_key) values ('a', 'user:1'), ('b', 'user:1')"
    )
    by_key = ("--key", "user:1", "--type", "a")
    status, sentence = rota("cancel", "--key", "user:1").error
    assert status == 2 and "several types hold the key 'user:1': a, b; name one" in sentence
    moved = rota.ok("reschedule", *by_key, "--delay", "3d", "--json")
    assert moved.json == {"jobs": [{"id": 1, "answer": "done", "status": "queued"}]}
    assert "cancelled" in rota.ok("cancel", *by_key, "--why", "acted first").out
    [over] = rows(connection, "select id, cancel_reason from rota.job_history")
    assert over == (1, "acted first")
    assert (
        rota("cancel", *by_key).error[1] == "no job of type 'a' holds the idempotency key 'user:1'"
    )
    assert rota("cancel", "--key", "user:1", "2").error == (2, "give ids or a filter, not both")
    beside = rota("cancel", "--key", "user:1", "--queue", "default")
    assert "cancel with a filter asks for confirmation" in beside.error[1]


@rule("M85", "M87")
def test_jobs_are_listed_and_acted_on_by_a_part_of_payload_or_meta(
    rota: Here, connection: Connection
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
