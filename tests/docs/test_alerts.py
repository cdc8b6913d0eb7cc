"""The blocks of alerts.md, alert-rules.md, rota-check.md and dead-man-switch.md do what they
say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store import ops
from tests.docs.reader import read_page
from tests.store.work import Hand
from tests.support import forked
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.web import serving

ALERTS, RULES = read_page("alerts.md"), read_page("alert-rules.md")
CHECK, SWITCH = read_page("rota-check.md"), read_page("dead-man-switch.md")
SHOP = "import rota\n\napp = rota.App()\n\n\n@app.job\ndef greet(name: str) -> None: ...\n"
Connection = psycopg.Connection[TupleRow]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@rule("M86")
def test_the_table_of_the_rules_is_what_the_schema_comes_with(connection: Connection) -> None:
    written = re.findall(
        r"^\| `([\w ]+)` \| `(\w+)` \|.*\| (critical|warning(?:, from \d+ critical)?) \|$",
        RULES,
        re.MULTILINE,
    )
    assert (
        sorted(written)
        == connection.execute(
            "select name, kind, concat(severity, ', from ' || critical_from || ' critical') "
            "from rota.alert_rule order by name"
        ).fetchall()
    )
    columns = [
        name
        for (name,) in connection.execute(
            "select attname from pg_attribute where attrelid = 'rota.alert_rule'::regclass "
            "and attnum > 0"
        )
    ]
    described = re.findall(r"^\| `(\w+)` \| [^|]+\|[^|]*\|$", RULES, re.MULTILINE)
    assert set(described) == set(columns) - {"kind", "due_at"}


@rule("M86")
def test_every_sql_block_of_the_pages_runs(connection: Connection) -> None:
    for block in [*blocks(RULES, "sql"), *blocks(ALERTS, "sql")]:
        for statement in re.sub(r"--.*", "", block).split(";"):
            if statement.strip():
                done = connection.execute(statement.encode())
                assert done.statusmessage is not None and done.statusmessage not in (
                    "UPDATE 0",
                    "INSERT 0 0",
                ), statement


@rule("M86")
def test_the_handler_and_the_json_of_the_page_are_what_comes(
    database: str, connection: Connection
) -> None:
    import msgspec

    import rota

    [said] = blocks(ALERTS, "json")
    told = msgspec.json.decode(said, type=ops.alert.AlertMessage)
    assert msgspec.json.decode(said).keys() == set(told.__struct_fields__)

    sent: list[tuple[str, str, str]] = []
    app = rota.App(database)
    [handler] = blocks(ALERTS, "python")
    exec(handler, {"app": app, "send_mail": lambda *mail: sent.append(mail)})
    connection.execute(blocks(ALERTS, "sql")[0].encode())
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, failed_at) "
        "select 't', 'default', 0, 'dead', rota.clock()"
        " from generate_series(1, 10)"
    )
    app.drain()
    app.drain()
    assert [(to, subject) for to, subject, _ in sent] == [
        ("ops@example.com", "critical: dead jobs fires")
    ]
    assert Hand(connection).run(ops.find_alert_matches("dead jobs")) != []


@pytest.mark.system
@rule("M86")
def test_the_commands_and_the_crontab_lines_of_the_page_work(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    [commands] = blocks(CHECK, "sh")
    ran = [_typed(tmp_path, line.partition("#")[0], database) for line in commands.splitlines()]
    assert [one.returncode for one in ran] == [0, 0, 0], ran
    assert ran[0].stdout.startswith(re.findall(r"# (OK.*=0) …", commands)[0])

    cron, drain = (
        line.split(maxsplit=5)[5]
        for block in [*blocks(CHECK, "text"), *blocks(SWITCH, "text")]
        for line in block.splitlines()
        if "* * *" in line
    )
    assert _typed(tmp_path, cron, database).stdout == ""
    rota.ok("work", "--app", "shop:app", "--drain")
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into rota.job (job_type, queue, priority, status, failed_at) "
            "values ('t', 'default', 0, 'dead', rota.clock())"
        )
    assert _typed(tmp_path, cron, database).stdout.startswith("WARNING - dead jobs: 1 job died")
    with serving() as web:
        assert (
            _typed(
                tmp_path, drain.replace("https://hc.example/the-check", web.url), database
            ).returncode
            == 0
        )
        assert len(web.asked) == 1


def _typed(place: Path, line: str, database: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell would, `rota` being ours."""
    forked.write_rota(place)
    path = f"{place}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ROTA_DATABASE_URL": database}
    return subprocess.run(
        ["sh", "-c", line],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
