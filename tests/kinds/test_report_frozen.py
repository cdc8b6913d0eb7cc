"""A worker that is frozen for longer than its lease, before it writes a file that another makes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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

Connection = psycopg.Connection[TupleRow]
Work = Callable[[str], subprocess.Popen[bytes]]
ROWS = 30_000
"""Two pages of `report_app`."""


@pytest.fixture
def run(database: str, connection: Connection, tmp_path: Path) -> Iterator[report.ReportRun]:
    """The run of a report that was asked for."""
    connection.execute(
        "create table item as select g::int as id, 'x' as name, now() as made_at "
        f"from generate_series(0, {ROWS - 1}) g".encode()
    )
    reports = report.Reports(tmp_path)
    reports.report("items", columns=["id", "name", "made_at"])(report.ReportSource)
    app = rota.App(database, jobs=[reports.jobs])
    app.migrate()
    app.sync()
    yield reports.request("items", {"rows": ROWS})
    app.close()


@pytest.fixture
def work(database: str, tmp_path: Path) -> Iterator[Work]:
    """Starts a worker that freezes before it writes a file whose name ends so."""
    command = [sys.executable, "-m", "rota", "work", "--app", "tests.kinds.report_app:app"]
    environment = {**os.environ, "ROTA_DATABASE_URL": database, "REPORT_FILES": str(tmp_path)}

    with ExitStack() as stack:

        def work(freezes: str) -> subprocess.Popen[bytes]:
            own = {**environment, "REPORT_FREEZES": freezes}
            worker = subprocess.Popen([*command, "--concurrency", "1"], env=own)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            return worker

        yield work


def freeze(worker: subprocess.Popen[bytes], connection: Connection) -> None:
    """Wait until the worker is frozen, and its lease is over."""
    stopped = psutil.STATUS_STOPPED
    eventually(lambda: psutil.Process(worker.pid).status() == stopped, 60)
    expire_leases(connection)


def thaw(worker: subprocess.Popen[bytes], files: Path) -> None:
    """Let a frozen worker go on, and wait until it has written its file."""
    worker.send_signal(signal.SIGCONT)
    eventually((files / "late").exists, 30)
    (files / "late").unlink()


def retry(connection: Connection, run: report.ReportRun) -> report.ReportRun:
    """Let what is to be tried again be due; return the run."""
    connection.execute("update rota.job set run_at = now() where status = 'failed'")
    return run.refresh()


def names(files: Path) -> list[str]:
    """The endings of the files that are there."""
    # os.walk passes over a directory that goes meanwhile, and rglob does not.
    return [Path(name).suffix for _, _, found in os.walk(files) for name in found]


def check(run: report.ReportRun) -> None:
    """Check that the file is the one that was noted."""
    with run.open() as file:
        raw = file.read()
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (run.size, run.checksum)
    assert raw.count(b"\n") == ROWS + 1


@rule("M72", "M32")
@pytest.mark.slow
@pytest.mark.system
def test_a_worker_that_was_frozen_does_not_change_the_file_of_another_and_leaves_none(
    run: report.ReportRun, work: Work, connection: Connection, tmp_path: Path
) -> None:
    frozen = work(".csv")
    freeze(frozen, connection)
    work("never")
    eventually(lambda: retry(connection, run).status == "ready", 30)
    check(run.refresh())
    thaw(frozen, tmp_path)
    check(run.refresh())
    eventually(lambda: names(tmp_path) == [".csv"], 30)
    check(run.refresh())


@rule("M72", "M32")
@pytest.mark.slow
@pytest.mark.system
def test_a_page_of_a_worker_that_was_frozen_does_not_count(
    run: report.ReportRun, work: Work, connection: Connection, tmp_path: Path
) -> None:
    frozen = work(".part")
    freeze(frozen, connection)
    other: Any = (
        "update rota.job set run_at = now() + %s::interval "
        "where job_type = 'report.page' and status = 'queued'"
    )
    connection.execute(other, ["1 h"])
    work("never")
    eventually(lambda: retry(connection, run).pages_done == 1, 30)
    thaw(frozen, tmp_path)
    eventually(lambda: names(tmp_path) == [".part"], 30)
    frozen.kill()
    frozen.wait()
    connection.execute(other, ["0 s"])
    eventually(lambda: retry(connection, run).status == "ready", 30)
    check(run.refresh())
