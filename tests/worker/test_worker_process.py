"""Worker processes that are told to stop."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

import rota
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.table import (
    Connection,
    connected,
    over,
    put,
    rows,
    status,
    value,
)

pytestmark = pytest.mark.system


@rule("M83")
def test_a_terminal_that_closes_stops_a_worker_and_never_skips_its_grace_period(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database)
    first, job = (put(connection, "hold", until=str(tmp_path / file)) for file in ("first", "go"))
    for id_ in (first, job):
        worker.until_noted(f"start {id_}")
    for _ in range(2):  # by the kernel and by the shell
        worker.signal(signal.SIGHUP)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    worker.signal(signal.SIGHUP)
    (tmp_path / "first").touch()
    worker.until_noted(f"end {first}")  # so its loop has turned since
    (tmp_path / "go").touch()
    assert worker.wait() == 0, worker.log
    assert (status(connection, job), f"cancelled {job}" in worker.notes()) == ("succeeded", False)


@rule("M83")
def test_a_handler_that_outlasts_the_grace_period_is_cancelled_and_its_job_handed_back_uncharged(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database, concurrency=5, grace="0.3s")
    cancelled, told = (
        put(connection, "hold", until=str(tmp_path / "go")),
        put(connection, "block", until=str(tmp_path / "go"), polite=True),
    )
    for job in (cancelled, told):
        worker.until_noted(f"start {job}")

    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log
    assert f"cancelled {cancelled}" in worker.notes()
    assert rows(
        connection, "select id, status, attempts, last_error from rota.job order by id"
    ) == [
        (cancelled, "queued", 0, None),
        (told, "queued", 0, None),
    ]
    assert value(connection, "select count(*) from rota.attempt") == 0

    other = start_worker(database, concurrency=5)
    (tmp_path / "go").touch()
    eventually(lambda: over(connection) == 2)
    assert rows(connection, "select distinct locked_by, attempts from rota.job_history") == [
        (other.name(connection), 1)
    ]


@rule("M83")
def test_a_second_signal_ends_the_grace_period_at_once(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    jobs = [
        put(connection, job_type, until=str(tmp_path / "never")) for job_type in ("hold", "block")
    ]
    worker = start_worker(database, concurrency=5, grace="10m", drain=True, signals=True)
    for job in jobs:
        worker.until_noted(f"start {job}")

    worker.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    assert f"cancelled {jobs[0]}" not in worker.notes()
    worker.signal(signal.SIGINT)

    assert worker.wait() == 0, worker.log
    assert rows(connection, "select id, status, attempts, locked_by from rota.job order by id") == [
        (job, "queued", 0, None) for job in jobs
    ]
    assert f"cancelled {jobs[0]}" in worker.notes()
    assert rows(connection, "select stopped_at is not null from rota.worker") == [(True,)]


@rule("M32")
async def test_two_starts_with_the_same_pid_on_the_same_host_have_different_names(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a container
    monkeypatch.setattr(socket, "gethostname", lambda: "shop-0")
    for _ in range(2):
        async with Hand(database, jobs):
            pass
    names = [name for (name,) in rows(connection, "select name from rota.worker")]
    assert len(set(names)) == 2 and all(name.startswith("shop-0:1:") for name in names)
