"""A report of many rows by two workers that are killed again and again: the file is the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import report
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.table import expire_leases

MEMORY_MB = 200
UNFINISHED = "select count(*) from rota.job"
RUNNING: Any = "select count(*) from rota.job where job_type = 'report.page' and status = 'running'"


@rule("M72", "M30")
@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.system
@pytest.mark.parametrize(
    ("rows", "kills"), [(200_000, 3), pytest.param(1_000_000, 5, marks=pytest.mark.long)]
)
def test_a_report_whose_workers_are_killed_is_the_same_file_in_bounded_memory(
    database: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
    rows: int,
    kills: int,
) -> None:
    connection.execute(
        "create table item as select g::int as id, 'name of ' || g as name, "
        "timestamptz '2026-01-01 00:00Z' + g * interval '1 s' as made_at "
        f"from generate_series(0, {rows - 1}) g".encode()
    )
    connection.execute("alter table item add primary key (id)")
    undisturbed = _make(database, connection, tmp_path / "a", rows, kills=0)
    disturbed = _make(database, connection, tmp_path / "b", rows, kills)
    assert disturbed.rows == undisturbed.rows == rows
    assert disturbed.checksum == undisturbed.checksum
    files = [one for one in (tmp_path / "b").rglob("*") if one.is_file()]
    assert [one.name for one in files] == ["items.csv"]


def _make(
    database: str, connection: psycopg.Connection[TupleRow], files: Path, rows: int, kills: int
) -> report.ReportRun:
    environment = {**os.environ, "ROTA_DATABASE_URL": database, "REPORT_FILES": str(files)}
    command = [sys.executable, "-m", "rota", "work", "--app", "tests.kinds.report_app:app"]
    command += ["--concurrency", "2"]
    chance, peak = random.Random(kills), [0]
    reports = report.Reports(files)
    reports.report("items", columns=["id", "name", "made_at"])(report.ReportSource)
    app = rota.App(database, jobs=[reports.jobs])
    app.migrate()
    app.sync()
    run = reports.request("items", {"rows": rows, "files": str(files)})
    for _ in range(kills):
        with Workers(command, environment, peak) as workers:
            eventually(lambda: connection.execute(RUNNING).fetchone() != (0,), 60)
            threading.Event().wait(chance.uniform(0.05, 0.4))
            for one in workers:
                one.kill()
        expire_leases(connection)
    with Workers(command, environment, peak):
        eventually(lambda: run.refresh().status == "ready", 300)
        eventually(lambda: connection.execute(UNFINISHED).fetchone() == (0,), 60)
    app.close()
    assert 0 < peak[0] < MEMORY_MB * 1024**2
    return run.refresh()


class Workers:
    """Two worker processes, whose resident memory is watched; they are killed at the end."""

    def __init__(self, command: list[str], environment: dict[str, str], peak: list[int]) -> None:
        self._start = command, environment
        self._peak = peak
        self._over = threading.Event()

    def __enter__(self) -> list[subprocess.Popen[bytes]]:
        command, environment = self._start
        self._workers = [subprocess.Popen(command, env=environment) for _ in range(2)]
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self._workers

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._watch.join()
        for one in self._workers:
            one.kill()
            one.wait()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for one in self._workers:
                try:
                    used = psutil.Process(one.pid).memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self._peak[0] = max(self._peak[0], used)
