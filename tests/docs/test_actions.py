"""Every block of actions.md and reschedule.md does what it says."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.cli import run
from tests.docs.reader import read_page
from tests.support.project import enter
from tests.support.rules import rule

PAGE = read_page("actions.md") + read_page("reschedule.md")
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
        ["done"],
        ["done"],
        ["done"],
        ["not found"],
        ["not found"],
        ["requeue"],
    ]


@rule("M20", "M51", "M87")
def test_the_follow_up_of_the_page_is_moved_and_cancelled_when_the_user_acts_first(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)

    @app.job("follow_up")
    def follow_up(user: int) -> None: ...

    names: dict[str, Any] = {
        "app": app, "rota": rota, "follow_up": follow_up, "psycopg": psycopg, "datetime": datetime,
    }  # fmt: skip
    exec(compile(block("py"), "reschedule.md", "exec"), names)
    day = datetime(2100, 1, 1, tzinfo=UTC)
    with psycopg.connect(database) as own:
        names["signed_up"](own, 42)
        names["signed_up"](own, 43)
        names["asked_for_another_day"](own, 42, day)
        names["acted"](own, 43)
        names["acted"](own, 43)
    app.close()
    assert connection.execute("select status, payload, run_at from rota.job").fetchall() == [
        ("queued", {"user": 42}, day)
    ]
    assert connection.execute("select payload, cancel_reason from rota.job_history").fetchall() == [
        ({"user": 43}, "acted first")
    ]


@rule("M44", "M87")
def test_each_python_line_works(
    database: str, connection: Connection, dead: None, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.App(database)
    exec(compile(block("python"), "actions.md", "exec"), {"app": app})
    app.close()
    assert capsys.readouterr().out.startswith("3 retried {2: ")
    verbs = connection.execute("select verb, count(*) from rota.action group by verb").fetchall()
    assert dict(verbs) == {
        "requeue": 4,
        "discard": 1,
        "archive": 1,
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
    assert "1 job to be retried" in said.err and "1 job to be cancelled" in said.err
    verbs = connection.execute("select verb, job from rota.action order by id").fetchall()
    assert verbs[:5] == [
        ("requeue", 1),
        ("requeue", 2),
        ("archive", 3),
        ("requeue", 4),
        ("discard", 5),
    ]
