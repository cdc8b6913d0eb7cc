"""reports.md: its code makes a report, shows it, and its table has each status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import report
from rota.kinds.report.formats import FORMATS
from rota.kinds.report.run import Status
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("reports.md")
SHOP, SHOWING, LINKING, BUCKET = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^rota (.*?)(?:  #.*)?$", PAGE, re.MULTILINE)


@rule("M72")
def test_the_code_of_the_page_makes_a_report(
    database: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    (tmp_path / "shop_reports.py").write_text(SHOP)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    migrate, work, *others = COMMANDS
    assert work.startswith("work")
    command.ok(*migrate.split())
    connection.execute("create table news (text text)")
    connection.execute(
        "create table orders as select g as id, g * 2 as total from generate_series(1, 25000) g"
    )
    names: dict[str, Any] = {}
    for text in (SHOP, SHOWING, LINKING, BUCKET):
        exec(compile(text, "reports.md", "exec"), names)
    app: rota.App = names["app"]
    with connection.transaction():
        run = names["export_now"](connection, "anna")
    assert names["show"](run) == "queued"
    app.drain()
    assert names["show"](run).startswith("25000 rows, ")
    assert connection.execute("select text from news").fetchall() == [("report 1 is ready",)]
    assert names["link_of"](run).startswith("/reports/1/file?expires=")
    assert isinstance(names["in_a_bucket"]().store, report.ObjectStore)
    for one in others:
        assert "orders" in command.ok(*one.split()).out
    app.close()


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == {*get_args(Status), *FORMATS}
