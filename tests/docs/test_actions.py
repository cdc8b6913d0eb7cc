"""Every block of docs/actions.md does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.cli import run
from tests.support.project import enter
from tests.support.rules import rule

PAGE = (Path(__file__).parents[2] / "docs" / "actions.md").read_text(encoding="utf-8")
Connection = psycopg.Connection[TupleRow]


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def dead(connection: Connection) -> None:
    """Four dead jobs, 1 … 4, and a queued one."""
    connection.execute(
        "insert into rota.job (job_type, status, failed_at, error_type) "
        "select 'report', 'dead', rota.clock(), 'OSError' from generate_series(1, 4)"
    )
    connection.execute("insert into rota.job (job_type) values ('report')")


@rule("M15", "M44")
def test_each_sql_statement_answers_for_each_job(connection: Connection, dead: None) -> None:
    answers = [connection.execute(line.encode()).fetchall() for line in block("sql").splitlines()]
    assert [[row[1] for row in rows] for rows in answers] == [
        ["done"] * 2,
        ["done"],
        ["done"],
        ["done"],
        ["refused"],
        ["done"],
        ["done"],
        ["requeue"],
    ]


@rule("M44", "M87")
def test_each_python_line_works(
    database: str, connection: Connection, dead: None, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.App(database)
    exec(compile(block("python"), "docs/actions.md", "exec"), {"app": app})
    app.close()
    assert capsys.readouterr().out.startswith("3 requeued {2: ")
    verbs = connection.execute("select verb, count(*) from rota.action group by verb").fetchall()
    assert dict(verbs) == {
        "requeue": 4,
        "bury": 1,
        "ignore": 1,
        "cancel": 3,
        "run_again": 1,
        "reschedule": 1,
    }


@rule("M44", "M87")
def test_each_command_line_works(
    database: str,
    connection: Connection,
    dead: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    for line in block("sh").splitlines():
        assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr())
    said = capsys.readouterr()
    assert "1 job to be requeued" in said.err and "1 job to be cancelled" in said.err
    verbs = connection.execute("select verb, job from rota.action order by id").fetchall()
    assert verbs[:5] == [("requeue", 1), ("requeue", 2), ("ignore", 3), ("requeue", 4), ("bury", 5)]
