"""kinds.md: its checklist finds what it says, and its table has the rules that are shipped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.declare.checklist import find_hints
from rota.kinds import MAIL, REPORT, REPORT_PAGE, URGENT_MAIL, WEBHOOK
from rota.testing import run_twice
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("kinds.md")
BAD, GOOD, STOCK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[COMMAND] = re.findall(r"```sh\nrota (.*?)\n```", PAGE)
[HINTS] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@rule("M73")
def test_the_checklist_of_the_page_prints_these_hints(tmp_path: Path) -> None:
    (tmp_path / "shop_kinds.py").write_text(BAD)
    said = CommandLine(tmp_path).ok(*COMMAND.split()).out
    assert said == HINTS.replace("…", str(tmp_path))
    assert set(re.findall(r"^\| `(\w+)` \| [TIN]", PAGE, re.MULTILINE)) == {
        "repeated", "timeout", "expires",
    }  # fmt: skip


@rule("M73", "M50")
def test_the_type_of_the_page_without_hints_has_none_and_repeats_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    names: dict[str, Any] = {"__name__": "shop_kinds"}
    exec(compile(BAD, "shop_kinds.py", "exec"), names)
    exec(compile(GOOD, "shop_kinds.py", "exec"), names)
    app: rota.App = names["app"]
    assert find_hints([app._declarations.types["order_crm"]]) == []
    told: list[int] = []
    names["tell_crm"] = told.append  # in place of the service
    run_twice(app.types["order_crm"].new(order=17))
    assert told == [17]
    app.close()


def test_the_package_of_the_page_makes_its_tables_and_its_command_runs(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    for file, text in re.findall(r"```sql\n-- (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    app = "import rota\n" + STOCK + "app = rota.App(jobs=[stock])\n"
    (tmp_path / "stock.py").write_text(app)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database, ROTA_APP="stock:app")
    assert "stock/0001_tables" in command.ok("migrate").out
    connection.execute("insert into rota.stock_item values ('tea', 7), ('milk', 2), ('oil', 1)")
    assert command.ok("stock", "low").out == "milk, oil\n"
    assert command.ok("stock", "low", "--below", "2").out == "oil\n"


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
