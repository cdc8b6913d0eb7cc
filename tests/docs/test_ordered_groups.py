"""The blocks of ordered-groups.md and concurrency-limits.md work, and their commands say what
these pages say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("ordered-groups.md")
GROUPS, LIMITS = re.findall(
    r"```python\n(.*?)```", PAGE + read_page("concurrency-limits.md"), re.DOTALL
)
HALTED, LOOKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)

Connection = psycopg.Connection[TupleRow]


@rule("M60")
def test_the_jobs_of_the_page_run_in_the_order_of_their_lanes(
    database: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    page: dict[str, Any] = {}
    exec(GROUPS, page)  # the page is ours
    app: rota.App = page["app"]
    assert {lane.group_key: lane.waiting for lane in app.groups.list()} == {
        "invoice:7": 3,
        "invoice:8": 1,
    }
    assert app.drain().succeeded == 4
    booked = [line for line in capfd.readouterr().out.splitlines() if line.startswith("7 ")]
    assert booked == ["7 open", "7 close", "7 mail"]
    app.close()


@rule("M60", "M87")
def test_the_caps_of_the_page_are_set(database: str) -> None:
    app = rota.App(database)
    exec(LIMITS, {"app": app})  # the page is ours
    app.sync()
    assert [(cap.kind, cap.name, cap.max_running) for cap in app.queues.concurrency_limits()] == [
        ("queue", "email", 20),
        ("type", "report", 3),
    ]
    app.close()


def _type(text: str, directory: Path, database: str) -> list[str]:
    """Type the lines of a block; return what each printed."""
    run = CommandLine(directory, ROTA_DATABASE_URL=database)
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert all(line[0] == "rota" for line in lines)
    return [run.ok(*line[1:]).out for line in lines]


@rule("M60", "M87")
def test_a_halted_lane_is_seen_and_goes_on_as_the_page_says(database: str, tmp_path: Path) -> None:
    app = rota.App(database)
    steps: list[Any] = []

    @app.job("book", ordered=rota.Ordered(lambda n: "invoice:7", after_death="halt"))
    def book(n: int) -> None:
        steps.append(n)
        if steps == [1]:
            raise rota.Dead("no such account")

    for n in (1, 2):
        book.enqueue(n)
    app.drain()
    assert steps == [1]
    # `retry 1` and `archive 1` are two ways: the second needs another dead job.
    looks, retries, archives = HALTED.splitlines()
    seen, _ = _type(f"{looks}\n{retries}", tmp_path, database)
    assert "invoice:7" in seen
    assert "halted by job 1" in seen
    app.drain()
    assert steps == [1, 1, 2]
    steps.clear()
    again = book.enqueue(1)
    book.enqueue(2)
    app.drain()
    _type(archives.replace("archive 1", f"archive {again.id}"), tmp_path, database)
    app.drain()
    assert steps == [1, 2]
    app.close()


@rule("M11", "M60")
def test_the_looks_of_the_page_show_what_jobs_wait_for(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    app = rota.App(database)
    app.queues.set_max_running("email", 20)
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key, status, in_lane, locked_by, "
        "locked_until, started_at) values "
        "('t', 'email', 0, 'invoice:7', 'running', true, 'w', '2100-01-01Z', "
        "now() - interval '150 min'), "
        "('t', 'email', 0, 'invoice:7', 'waiting', null, null, null, null)"
    )
    lanes, one, jobs, job, queues = _type(LOOKS, tmp_path, database)
    assert lanes == one
    assert "invoice:7" in lanes
    assert jobs.count("email") == 2
    assert "for its ordered group invoice:7: job 1 (running since " in job
    assert "queue email: 0 of at most 20 run" in queues
    app.close()
