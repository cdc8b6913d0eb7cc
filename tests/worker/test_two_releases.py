"""A deploy that is under way: workers of two releases of the application, or of Rota itself, and
producers of both."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.process import WorkerProcess
from tests.worker.table import Connection, connected, over, put_many, rows, value

pytestmark = pytest.mark.system

MADE_BY: dict[str, dict[str, dict[str, Any]]] = {
    "old": {"greet": {"user": 1}, "bill": {"order": 2}, "draw": {"size": 3}}
}
MADE_BY["new"] = {
    "greet": {"user": 1, "language": "de"},
    "invoice": {"order": 2},
    "draw": {"width": 3, "height": 4},
    "thank": {"user": 5},
}
ALL = len(MADE_BY["old"]) + len(MADE_BY["new"])
THIRTY_SECONDS_PASS = (
    "update rota.job set run_at = rota.clock() where status = 'queued' "
    "and mismatched_releases is not null and run_at > rota.clock()"
)


@pytest.fixture
def deploy(database: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Enqueue a job of each type of each release, as its producers would."""
    monkeypatch.setenv("ROTA_DATABASE_URL", database)

    def enqueue() -> None:
        for release, payloads in MADE_BY.items():
            app: rota.App = runpy.run_path(str(Path(__file__).with_name(f"release_{release}.py")))[
                "app"
            ]
            for name, payload in payloads.items():
                app.types[name].enqueue(**payload)
            app.close()

    return enqueue


@rule("M12", "M13")
def test_of_two_releases_each_runs_what_it_can_and_nothing_is_dead(
    start_worker: StartWorker, database: str, connection: Connection, deploy: Callable[[], None]
) -> None:
    old = start_worker(database, module="tests.worker.release_old")
    new = start_worker(database, module="tests.worker.release_new")

    freeze_between_two_claims(connection, new)  # the old one alone, while the new one is known
    deploy()
    eventually(
        lambda: (
            over(connection) == 4
            and value(
                connection, "select count(*) from rota.job where mismatched_releases is not null"
            )
            == 1
        )
    )
    assert _done(connection) == {
        # Its own job and the new release's, whose additional field it ignores.
        ("greet", "hello 1", "old"),
        ("bill", 2, "old"),
        ("draw", (3, 3), "old"),
    }
    assert rows(
        connection,
        "select job_type, status, attempts, claims > 0, mismatched_releases from rota.job "
        "order by id",
    ) == [
        ("invoice", "queued", 0, False, None),  # never claimed: the old release knows neither name
        ("draw", "queued", 0, True, ["old"]),
        ("thank", "queued", 0, False, None),
    ]

    freeze_between_two_claims(connection, old)  # the new one alone
    new.signal(signal.SIGCONT)
    connection.execute(THIRTY_SECONDS_PASS)
    connection.execute("truncate rota.job_history")
    deploy()
    eventually(lambda: over(connection) == 3 + ALL)
    assert _done(connection) == {
        ("greet", "hello 1 in en", "new"),
        ("greet", "hello 1 in de", "new"),
        ("bill", 2, "new"),
        ("invoice", 2, "new"),
        ("draw", (3, 3), "new"),
        ("draw", (3, 4), "new"),
        ("thank", "thanks 5", "new"),
    }

    assert rows(connection, "select distinct status, attempts from rota.job_history") == [
        ("succeeded", 1)
    ]
    assert set(
        rows(connection, "select distinct outcome, error_type, release from rota.attempt")
    ) == {("queued", "rota.errors.PayloadError", "old")}
    old.signal(signal.SIGCONT)
    for worker in (old, new):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log


def freeze_between_two_claims(connection: Connection, worker: WorkerProcess) -> None:
    """With a claim under way it would be given jobs that come later, and keep them for a lease."""
    at_rest = (
        "select count(*) = 2 from pg_stat_activity where pid = any (%s) and state = 'idle' "
        "and clock_timestamp() - state_change > interval '0.2 s'"
    )
    eventually(lambda: value(connection, at_rest, connected(connection, "claim")))
    worker.freeze()


def _done(connection: Connection) -> set[tuple[Any, ...]]:
    found = rows(connection, "select job_type, result, release from rota.job_history")
    return {
        (kind, tuple(result) if isinstance(result, list) else result, release)
        for kind, result, release in found
    }


HERE = Path(rota.__file__).parent
SCHEMA = Path("store", "schema")


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The directory of a Rota 0.2.0: its finish is another function, and its renewal has another
    text."""
    place = tmp_path / "next"
    package = place / "rota"
    shutil.copytree(HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    _edit(package / "declare" / "release.py", 'VERSION = "0.1.0"', 'VERSION = "0.2.0"')
    functions = package / SCHEMA / "functions"
    finish = functions / "finish" / "job_finish_2.sql"
    shutil.copy(functions / "finish" / "job_finish.sql", finish)
    _edit(finish, "function {schema}.job_finish(", "function {schema}.job_finish_2(")
    for file in (package / "store" / "ops").glob("*.py"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"job_finish"', '"job_finish_2"'),
            encoding="utf-8",
        )
    _edit(functions / "lease" / "job_renew.sql", "begin\n", "begin\n  -- of 0.2.0\n")
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


@pytest.mark.nightly
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
