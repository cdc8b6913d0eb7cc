"""`rota work --database A --database B`: one command works several databases, and what befalls one
does not touch the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from rota.cli import run
from rota.cli.work import _sum
from rota.store.migrate import migrate
from rota.worker.summary import Summary
from tests.support import forked
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import StartSupervisor
from tests.worker.supervisor import SupervisorProcess
from tests.worker.table import Connection, connected, put, put_many, rows, status, value

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="--database is for Linux"),
]

AWAY = "postgresql://nobody@127.0.0.1:1/nowhere"
"""ROTA_DATABASE_URL, which no process may use."""


def _name(url: str) -> str:
    return url.rpartition("@")[2]


def _pid(supervisor: SupervisorProcess, url: str) -> int:
    """The process that works a database."""
    line = next(
        line
        for line in reversed(supervisor.log.splitlines())
        if f" of {_name(url)} started" in line
    )
    return int(line.partition("worker process ")[2].split()[0])


@rule("M2", "M83")
def test_each_database_has_its_own_process_and_a_signal_finishes_what_runs_in_both(
    start_supervisor: StartSupervisor,
    database: str,
    connection: Connection,
    own_server: PostgresServer,
    tmp_path: Path,
) -> None:
    migrate(own_server.url())
    secret = own_server.url().replace("postgres@", "postgres:s3cr3t-word@")
    databases = [f"--database={url}" for url in (database, secret)]
    supervisor = start_supervisor(AWAY, 1, "--concurrency=1", *databases)
    supervisor.until_working(2)
    with psycopg.connect(own_server.url(), autocommit=True) as other:
        # Ids overlap: each job has a type of its own.
        first = put(connection, "hold", until=str(tmp_path / "go"))
        pids = [supervisor.until_noted(f"start {first}")]
        second = put(other, "block", until=str(tmp_path / "go"))
        eventually(lambda: status(other, second) == "running")
        pids = [_pid(supervisor, database), _pid(supervisor, secret)]
        assert {child.pid for child in supervisor.children()} == {*pids}
        supervisor.signal(signal.SIGTERM)
        for own in (connection, other):
            eventually(lambda own=own: not connected(own, "claim"))  # type: ignore[misc]
        (tmp_path / "go").touch()
        assert supervisor.wait() == (0, ""), supervisor.log
        assert [status(connection, first), status(other, second)] == ["succeeded"] * 2
        assert value(other, "select count(*) from rota.job_history") == 1
    for url, pid in zip((database, secret), pids, strict=True):
        assert f"worker process {pid} of {_name(url)} exited with status 0" in supervisor.log
        said = [line for line in supervisor.log.splitlines() if f"[{_name(url)}]" in line]
        assert [line for line in said if " started, release " in line]
    assert "s3cr3t-word" not in supervisor.log


def test_the_oldest_due_job_of_several_databases_is_the_oldest_of_what_each_said_last() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)

    def ended(oldest: datetime | None) -> Summary:
        return Summary(1, 1, 0, 0, oldest)

    assert _sum([("a", ended(early)), ("b", ended(None))]).oldest_due == early
    assert _sum([("a", ended(early)), ("b", ended(late)), ("a", ended(None))]).oldest_due == late
    assert _sum([(None, ended(early)), (None, ended(None))]).oldest_due is None


def _app(place: Path, url: str = "") -> str:
    (place / "mine.py").write_text(
        f"import os, rota\napp = rota.App({url})\n@app.job('a')\ndef a(): ...\n"
    )
    return "--app=mine:app"


def _rota(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROTA_DATABASE_URL": AWAY}
    return forked.run(["-m", "rota", *arguments], cwd=place, env=environment, timeout=180)


@pytest.mark.nightly
@rule("M80")
def test_a_drain_works_each_database_and_adds_the_summaries_up(
    tmp_path: Path, database: str, connection: Connection, own_server: PostgresServer
) -> None:
    migrate(own_server.url())
    put_many(connection, "a", 3)
    with psycopg.connect(own_server.url(), autocommit=True) as other:
        put_many(other, "a", 4)
    databases = [f"--database={url}" for url in (database, own_server.url())]
    ran = _rota(tmp_path, "work", _app(tmp_path), "--drain", "--json", *databases)
    assert ran.returncode == 0, ran
    assert msgspec.json.decode(ran.stdout)["succeeded"] == 7


def test_what_cannot_be_worked_is_refused_with_its_reason(
    database: str, empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_conninfo(database, user="somebody_else")
    for options, exit_status, why in (
        ((database, "--database", other), 2, f"names {_name(database)} twice"),
        ((database, "--reload"), 2, "without --drain, --processes and --database"),
        ((database, "--database", empty_database, "--processes=33"), 2, "than 64"),
        (("postgresql://a:s3cr3t@b@c/d",), 3, "is not shown"),
        (("postgresql://localhost",), 3, "must name its database"),
    ):
        assert run(["work", "--app=mine:app", "--database", *options]) == exit_status, options
        said = capsys.readouterr()
        assert said.out == "" and why in said.err and "s3cr3t" not in said.err, said.err


@pytest.mark.nightly
def test_an_app_whose_code_names_another_database_is_refused(
    tmp_path: Path, database: str, connection: Connection
) -> None:
    put_many(connection, "a", 1)
    ran = _rota(tmp_path, "work", _app(tmp_path, repr(AWAY)), "--drain", "--database", database)
    assert ran.returncode == 3
    assert f"--database gives {_name(database)}, but the App has a URL in its code" in ran.stderr
    assert rows(connection, "select status from rota.job") == [("queued",)]
