"""docs/mail.md: its code sends mails, and its tables are the rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import MAIL, REPORT, REPORT_PAGE, URGENT_MAIL, WEBHOOK
from tests.support.post import posting
from tests.support.rules import rule

PAGE = (Path(__file__).parents[2] / "docs/mail.md").read_text(encoding="utf-8")
SHOP, FIND, TEST, FILES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


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
    for file, text in re.findall(r"```jinja\n\{# (\S+) #\}(.*?)\n```", PAGE, re.DOTALL):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
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
    exec(TEST, names)
    connection.execute("truncate rota.effect, rota.idempotency")  # as in a database of its own
    names["test_a_sign_up_is_welcomed"](app, connection)
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


@rule("M73")
def test_the_table_of_the_page_has_the_rules_that_are_shipped() -> None:
    kinds: dict[str, Any] = {
        "URGENT_MAIL": URGENT_MAIL,
        "MAIL": MAIL,
        "WEBHOOK": WEBHOOK,
        "REPORT_PAGE": REPORT_PAGE,
        "REPORT": REPORT,
    }
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(kinds)
    for name, row in rows:
        timeout, delays, attempts, expires, priority = (one.strip() for one in row.split("|"))
        kind = kinds[name]
        after = getattr(kind.get("retry"), "after", "as usual")
        said = after if isinstance(after, str) else ", ".join(map(str, after))
        short = str.maketrans("", "", " ")
        assert timeout.translate(short).replace("min", "m") == kind.get("timeout", "asusual")
        assert delays.translate(short) == said.translate(short)
        assert attempts == str(kind["max_attempts"])
        assert expires.translate(short).replace("min", "m") == kind.get("expires", "")
        assert priority == str(kind.get("priority", ""))
        jobs = rota.Jobs()
        assert jobs.job("t", **kind)(lambda: None).name == "t"
