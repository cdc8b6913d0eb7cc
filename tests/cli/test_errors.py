"""What the commands say when they cannot."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from rota.cli.target import find_app
from rota.declare.release import VERSION
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def test_each_database_error_is_one_sentence_and_its_own_exit_status(
    shop: Path, database: str, empty_database: str, admin: Connection
) -> None:
    def said(url: str, *command: str) -> tuple[int, str]:
        return Here(shop, ROTA_DATABASE_URL=url)(*(command or ("jobs",))).error

    absent = make_conninfo(database, port=1)
    mail = ("enqueue", "send_mail", "--payload", '{"user_id": 1}')
    for command in (("jobs",), ("sync",), ("work", "--drain"), ("migrate",), mail):
        status, sentence = said(absent, *command)
        assert status == 5 and "Connection refused" in sentence, command
    name = sql.Identifier(f"cli_{conninfo_to_dict(database)['dbname']}")
    admin.execute(
        "do $$ begin create role password_users; exception when duplicate_object "
        "or unique_violation then null; end $$"
    )
    admin.execute(sql.SQL("create role {} login password 'right'").format(name))
    try:
        admin.execute(sql.SQL("grant password_users to {}").format(name))
        url = make_conninfo(database, user=name.as_string(None).strip('"'), password="wrong")
        status, sentence = said(url)
        assert status == 3 and "password authentication failed" in sentence
    finally:
        admin.execute(sql.SQL("drop role {}").format(name))
    assert said(make_conninfo(database, user="no_such_role"))[0] == 3
    assert said(make_conninfo(database, dbname="no_such_database"))[0] == 3
    assert said("nonsense://")[0] == 3
    for command in (("jobs",), ("work", "--drain")):
        status, sentence = said(empty_database, *command)
        assert status == 3 and "run `rota migrate`" in sentence, command


def test_with_json_an_error_is_one_object_on_stderr(rota: Here) -> None:
    for arguments, kind in (
        (("job", "1"), "JobNotFound"),
        (("job", "one"), "UsageError"),
        (("enqueue", "send_mail", "--payload", "[]"), "PayloadError"),
        (("sync", "--app", "nowhere:app"), "ConfigurationError"),
    ):
        ran = rota(*arguments, "--json")
        error = json.loads(ran.err)["error"]
        assert ran.out == "" and error["type"] == kind and error["message"]


@rule("M3")
def test_an_app_that_cannot_be_imported_shows_the_frames_of_its_own_code_and_the_cause(
    shop: Path,
) -> None:
    (shop / "helper.py").write_text("def find(run_at):\n    return {}[run_at]\n")
    (shop / "shop.py").write_text("import helper\n\nhelper.find(run_at='now')\n")
    rota = Here(shop)
    for command in (("sync",), ("work", "--drain")):
        ran = rota.apart(*command)
        first, *frames = ran.err.splitlines()
        assert (ran.status, ran.out) == (3, ""), ran
        assert first == """rota: 'shop:app' cannot be imported: KeyError: 'now'"""
        assert [line.split(", in")[0] for line in frames if line.startswith("  File")] == [
            f'  File "{shop / "shop.py"}", line 3', f'  File "{shop / "helper.py"}", line 2'
        ]  # fmt: skip
        assert frames[-1] == "KeyError: 'now'" and len(frames) <= 7
        assert "return {}[run_at]" in ran.err, "the person's own words are no flags"
    (shop / "shop.py").write_text("import rota\napp = rota.App(\n")
    assert "SyntaxError: '(' was never closed" in rota("sync").err
    (shop / "shop.py").write_text("import no_such_library\n")
    found = json.loads(rota("sync", "--json").err)["error"]
    assert found["type"] == "ConfigurationError"
    assert found["message"].endswith("ModuleNotFoundError: No module named 'no_such_library'")


@rule("M3")
def test_an_app_that_cannot_be_imported_disarms_no_command_whose_database_is_known(
    shop: Path, database: str, connection: Connection
) -> None:
    (shop / "shop.py").write_text("import no_such_library\n")
    cause = "'shop:app' cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    warning = f"rota: warning: {cause}; going on without the App, in schema rota\n"
    connection.execute("insert into rota.job (job_type) values ('t')")
    rota, bare = Here(shop, ROTA_DATABASE_URL=database), Here(shop)
    for command in (
        "check", "jobs", "job 1", "workers", "top --once",
        "queues pause default", "cancel 1", "enqueue t --force", "migrate --check",
    ):  # fmt: skip
        assert rota.ok(*command.split()).err.startswith(warning), command
    assert bare.ok("alerts", "--url", database).err == warning
    assert bare.ok("alerts", "--url", database, "--schema", "rota").err == ""
    found = next(
        check for check in rota("doctor", "--json").json["checks"] if check["name"] == "app"
    )
    assert (found["level"], found["what"]) == ("bad", cause)
    for command in ("migrate", "sync", "work", "enqueue t", "crontab"):
        assert rota(*command.split()).status == 3, command
    ran = bare("check")
    assert (ran.status, ran.out) == (3, f"UNKNOWN - {cause}\n")
    assert bare("check", "--json").json["error"] == cause


def test_help_and_version_need_neither_an_app_nor_a_database(tmp_path: Path) -> None:
    rota = Here(tmp_path)
    assert rota.ok("--version").out == f"{VERSION}\n"
    assert "Set up" in rota.ok("--help").out
    assert rota().status == 2 and rota("db").status == 2
    assert rota("nonsense").error == (
        2,
        "there is no command 'nonsense'; see rota --help; commands of your jobs need --app",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_the_user_may_not_look_into_has_no_pyproject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root's home under `sudo -u app rota stats`."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.chdir(closed)
    monkeypatch.setenv("PWD", str(closed))
    monkeypatch.delenv("ROTA_APP", raising=False)
    root = os.geteuid() == 0
    os.seteuid(pwd.getpwnam("nobody").pw_uid) if root else closed.chmod(0)
    try:
        assert find_app(None) is None
    finally:
        os.seteuid(0) if root else closed.chmod(0o700)


def test_a_wrong_command_line_is_a_usage_error(tmp_path: Path) -> None:
    rota = Here(tmp_path)
    for arguments, said in (
        (("--queue", "email="), "--queue takes NAME or NAME=SLOTS, as in email=20, not 'email='"),
        (("--queue", "a,b=2"), "--queue takes one queue each: --queue a --queue b=2"),
        (("--queue", "email=1", "--queue", "email=2"), "--queue names 'email' twice"),
        (("--queue", "a=1", "--concurrency", "2"), "give --concurrency or --queue NAME=SLOTS"),
        (("--for", "5s"), "--for needs --drain"),
        (("--concurrency", "many"), "Invalid value for '--concurrency'"),
        (("--fast",), "No such option"),
    ):
        status, sentence = rota("work", *arguments).error
        assert status == 2 and said in sentence, arguments


REFUSE = """
create function public.refuse() returns trigger language plpgsql as $$
begin
  raise exception '%', E'no \\x1b[2J \\u009b password=hunter2 ' || repeat('x', 32000) || E'\\nmore';
end $$;
create trigger no_job before insert or update or delete on rota.job
  for each row execute function public.refuse();
create trigger no_action before insert on rota.action
  for each row execute function public.refuse();
create trigger no_schedule before insert or update on rota.schedule
  for each row execute function public.refuse();
create trigger no_type before insert or update on rota.job_type
  for each row execute function public.refuse()"""


@rule("M45", "M87")
def test_what_a_trigger_of_the_user_s_raises_is_one_short_line(
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type) values ('t');"
        "insert into rota.job (job_type, status, failed_at) values ('t', 'dead', now());"
        "insert into rota.schedule (name, job_type) values ('s', 't');"
        "insert into rota.queue (name, paused_at, paused_by) values ('mail', now(), 'ann')"
    )
    connection.execute(REFUSE.encode())
    mail = ("send_mail", "--payload", '{"user_id": 1}')
    for command in (
        ("enqueue", *mail), ("enqueue", "other", "--force"), ("sync",), ("cancel", "1"),
        ("archive", "2", "--why", "x"), ("queues", "pause", "mail"),
        ("schedules", "put", "new", *mail), ("schedules", "trigger", "s"),
    ):  # fmt: skip
        status, sentence = rota(*command).error
        assert status == 1 and "the database refuses: RaiseException: no [2J" in sentence, command
        assert len(sentence) < 600 and sentence.isprintable() and "hunter2" not in sentence
    ran = rota("cancel", "1", "--json")
    message = json.loads(ran.err)["error"]["message"]
    assert (ran.status, ran.out) == (1, "") and message in rota("cancel", "1").err


@rule("M2")
def test_a_taken_id_is_told_with_what_sets_the_sequence_right(
    rota: Here, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) values ('t')")
    connection.execute("select setval('rota.job_id_seq', 1, false)")
    status, sentence = rota("enqueue", "other", "--force").error
    assert status == 1 and sentence.startswith("the database refuses: UniqueViolation: ")
    assert sentence.endswith("; after a restore without sequences run `rota queues resume --copy`")
    rota.ok("queues", "resume", "--copy")
    rota.ok("enqueue", "other", "--force")
