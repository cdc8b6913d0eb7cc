"""mail.md and find-and-resend-mail.md: their code sends, finds and forgets mails."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import Reader, read_page
from tests.support.cli import CommandLine
from tests.support.post import posting
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.testing.pytest_project import PytestProject

PAGE = read_page("mail.md") + read_page("find-and-resend-mail.md")
SHOP, TEST, FILES, FIND = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^rota (mail .*)$", PAGE, re.MULTILINE)


def write_templates(folder: Path) -> None:
    for file, text in re.findall(r"```jinja\n\{# (\S+) #\}(.*?)\n```", PAGE, re.DOTALL):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


@pytest.mark.system
@pytest.mark.slow
@rule("M70")
def test_a_reader_of_the_page_sees_a_mail_fail_and_arrive(
    tmp_path: Path, server: PostgresServer, empty_database: str
) -> None:
    shown = read_page("mail.md").partition("## The server")[0].replace("1025", str(unused_port()))
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        reader.follow(shown)
        told = reader.type("rota job 1")
        assert "succeeded" in told and "ServerUnavailable" in told and "250 OK" in told
        [log] = tmp_path.glob("*.log")
        assert "Hello Ada, your shop is open." in log.read_text()


def test_the_test_of_the_page_passes(tmp_path: Path, server: PostgresServer) -> None:
    project = PytestProject(tmp_path, ROTA_TEST_DATABASE_URL=server.url())
    project.configure('[tool.rota]\napp = "shop_mail:app"')
    write_templates(tmp_path)
    project.write("shop_mail.py", SHOP)
    project.write("test_shop_mail.py", TEST)
    ran = project.test()
    assert (ran.status, "1 passed" in ran.out) == (0, True), ran.out


@rule("M70")
def test_the_code_of_the_page_sends_finds_and_forgets_a_mail(
    database: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    write_templates(tmp_path)
    with posting() as post:
        names: dict[str, Any] = {}
        exec(compile(SHOP.replace("smtp://127.0.0.1:1025", post.url), "mail.md", "exec"), names)
        with connection.transaction():
            names["sign_up"](connection, 42, "Ada", "ada@example.org")
        app: rota.App = names["app"]
        assert app.drain().succeeded == 1
        [taken] = post.taken
        assert taken["Subject"] == "Welcome, Ada"
        assert "Hello Ada, your shop is open." in taken.as_string()
    exec(FIND, names)
    assert " sent welcome " in capsys.readouterr().out
    assert names["mailer"].find("ada@example.org") == []
    app.close()

    (tmp_path / "shop_mail.py").write_text(SHOP)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    assert [one.split()[1] for one in COMMANDS] == ["find", "forget", "resend"]
    for one in COMMANDS:
        command.ok(*shlex.split(one.replace("resend 7", "resend 1")))
    assert [job.status for job in app.find(status="queued")] == ["queued"], "it is sent again"
    app.cancel(2)
    app.close()

    exec(FILES, names)
    mailer = names["with_files"]
    app = rota.App(database, jobs=[mailer.jobs])
    attach = [("invoice", {"order": 17})]
    mailer.send("welcome", to="a@b.example", user_id=1, event="e", attach=attach)
    assert app.drain().succeeded == 1
    app.close()
    [file] = (tmp_path / "outbox").iterdir()
    assert b"17.pdf" in file.read_bytes()
