"""The tables of the pages with values that people copy say what the code does."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, get_args

import psycopg
from psycopg.rows import TupleRow

import rota
from rota.dashboard import VERBS
from rota.declare.config import WorkerConfig
from rota.declare.options import JobOptions, UsingOptions
from rota.kinds import MAIL, REPORT, REPORT_PAGE, URGENT_MAIL, WEBHOOK
from rota.kinds.report.formats import FORMATS
from rota.kinds.report.run import Status
from rota.observe.doctor.checks import CHECKS
from tests.docs.reader import read_page
from tests.support.rules import rule

KINDS: dict[str, dict[str, Any]] = {
    "URGENT_MAIL": dict(URGENT_MAIL),
    "MAIL": dict(MAIL),
    "WEBHOOK": dict(WEBHOOK),
    "REPORT_PAGE": dict(REPORT_PAGE),
    "REPORT": dict(REPORT),
}
Connection = psycopg.Connection[TupleRow]


def find(pattern: str, page: str, section: str | None = None) -> list[Any]:
    return re.findall(pattern, read_page(page, section), re.MULTILINE)


def ask(connection: Connection, query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()


@rule("M73")
def test_the_rules_of_kinds_are_those_that_are_shipped() -> None:
    rows = dict(find(r"^\| `([A-Z_]+)` \| (.*) \|$", "kinds.md"))
    assert rows.keys() == KINDS.keys()
    for name, kind in KINDS.items():
        after = getattr(kind.get("retry"), "after", "as usual")
        said = after if isinstance(after, str) else ",".join(map(str, after))
        values = (
            kind.get("timeout", "as usual"), said, kind["max_attempts"],
            kind.get("expires", ""), kind.get("priority", ""),
        )  # fmt: skip
        assert kind.get("lease") == (None if name == "REPORT" else "30s"), "as the page says"
        row = re.sub(r" |(?<=m)in", "", rows[name]).split("|")
        assert row == [str(value).replace(" ", "") for value in values], name


@rule("M86")
def test_the_alert_rules_are_what_the_schema_comes_with(connection: Connection) -> None:
    rows = find(
        r"^\| `([\w ]+)` \| `(\w+)` \|.*\| (critical|warning(?:, from \d+ critical)?) \|$",
        "checks-and-alerts.md",
        "Alert rules",
    )
    query = "concat(severity, ', from ' || critical_from || ' critical') from rota.alert_rule"
    assert sorted(rows) == ask(connection, f"select name, kind, {query} order by name")
    columns = ask(
        connection,
        "select attname from pg_attribute where attrelid = 'rota.alert_rule'::regclass "
        "and attnum > 0 and attname not in ('kind', 'due_at')",
    )
    shown = find(r"^\| `(\w+)` \| [^|]+\|[^|]*\|$", "checks-and-alerts.md", "Alert rules")
    assert set(shown) == {name for (name,) in columns}


@rule("M13")
def test_each_table_has_a_line_that_says_what_bounds_it(connection: Connection) -> None:
    lines = dict(find(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", "growing-tables.md"))
    tables = ask(
        connection,
        "select relname from pg_class where relnamespace = 'rota'::regnamespace "
        "and relkind in ('r', 'p') and not relispartition",
    )
    assert set(lines) == {name for (name,) in tables}
    kept = dict(ask(connection, "select what, keep from rota.retention"))
    assert lines["job_history"] == f"{kept['history'].days} days"
    assert lines["attempt"] == f"{kept['attempts'].days} days"
    assert lines["job"] == f"dead: {kept['dead'].days} days"
    options = find(r"^\| `--keep-(\w+)` \|.*\| (\d+) days \|$", "retention.md")
    assert {name: timedelta(days=int(days)) for name, days in options} == kept


def test_the_settings_of_the_live_table_are_those_of_the_page(connection: Connection) -> None:
    [(settings,)] = ask(
        connection, "select reloptions from pg_class where oid = 'rota.job'::regclass"
    )
    said = find(r"^\| `(\w+)` \| ([\d.]+) \|", "vacuum.md")
    assert sorted(f"{name}={value}" for name, value in said) == sorted(settings)


@rule("M3")
def test_each_check_of_doctor_has_its_line() -> None:
    checks = [check.name for check in CHECKS]
    assert find(r"^\| `([a-z-]+)` \|", "checks-and-alerts.md", "Checks") == checks
    signs = find(r"^- `([a-z-]+)`: ", "outgrown.md")
    assert signs and set(signs) <= set(checks)


@rule("M61")
def test_the_slots_for_the_urgent_are_what_a_worker_reserves() -> None:
    [slots] = find(r"^\| slots \|(.*)\|$", "reserved-slots.md")
    [kept] = find(r"^\| of these .*? \|(.*)\|$", "reserved-slots.md")
    for span, count in zip(slots.split("|"), kept.split("|"), strict=True):
        for n in (int(number) for number in span.split(" to ")):
            assert WorkerConfig().count_urgent_slots(n) == int(count)


def test_what_a_table_names_is_there() -> None:
    assert set(find(r"^\| `(\w+)` \|", "reports.md")) == {*get_args(Status), *FORMATS}
    verbs = find(r"frozenset\(\{([^}]*)\}", "dashboard.md")
    assert {verb.strip(' "') for text in verbs for verb in text.split(",")} <= VERBS
    options = JobOptions.__annotations__.keys() | UsingOptions.__annotations__.keys()
    others = {"capacity", "chunk", "lifespan"}
    assert set(find(r"`(\w+)=`", "which-tool.md")) <= options | others
    assert "capacity" in rota.Ordered.__init__.__annotations__
    assert "lifespan" in rota.App.__init__.__annotations__
