"""A deploy of Rota itself: two of its releases in one schema, each with its own functions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.table import Connection, over, put_many, rows, value
from tests.worker.test_releases import freeze_between_two_claims

pytestmark = pytest.mark.system

HERE = Path(rota.__file__).parent
SCHEMA = Path("store", "schema")


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The directory of a Rota 0.2.0: its finish is another function, and its renewal has another text."""
    place = tmp_path / "next"
    package = place / "rota"
    shutil.copytree(HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    _edit(package / "declare" / "release.py", 'VERSION = "0.1.0"', 'VERSION = "0.2.0"')
    functions = package / SCHEMA / "functions"
    finish = (functions / "job_finish.sql").read_text(encoding="utf-8")
    (functions / "job_finish_2.sql").write_text(
        finish.replace("function job_finish(", "function job_finish_2("), encoding="utf-8"
    )
    for file in (package / "store" / "ops").glob("*.py"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"job_finish"', '"job_finish_2"'),
            encoding="utf-8",
        )
    _edit(functions / "job_renew.sql", "begin\n", "begin\n  -- of 0.2.0\n")
    return place


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, file
    file.write_text(text.replace(old, new), encoding="utf-8")


def _migrate(url: str, place: Path = HERE.parent) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "rota", "migrate", "--url", url]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


@rule("M2", "M3")
def test_an_old_worker_goes_on_while_a_new_release_is_deployed_and_both_finish_their_jobs(
    start_worker: StartWorker,
    database: str,
    connection: Connection,
    next_release: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = start_worker(database)
    put_many(connection, "quick", 20)
    eventually(lambda: over(connection) == 20)
    assert "job_finish_2" in (said := _migrate(database, next_release)) and "job_renew" in said
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", str(next_release))
        new = start_worker(database)
    assert rows(connection, "select version from rota.worker order by started_at") == [
        ("0.1.0",),
        ("0.2.0",),
    ]
    put_many(connection, "quick", 200)
    eventually(lambda: over(connection) == 220)
    for ended, worker in enumerate((old, new)):
        freeze_between_two_claims(connection, worker)  # now the other alone
        put_many(connection, "quick", 20)
        eventually(lambda jobs=240 + 20 * ended: over(connection) == jobs)  # type: ignore[misc]
        worker.signal(signal.SIGCONT)
    # A roll-back runs the older migrate once more: it says what it leaves alone.
    assert "kept job_renew of the newer release 0.2.0" in _migrate(database)
    assert value(
        connection, "select prosrc like '%of 0.2.0%' from pg_proc where proname = 'job_renew'"
    )
    assert (
        value(connection, "select count(*) from rota.job_history where status <> 'succeeded'") == 0
    )
