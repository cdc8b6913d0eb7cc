"""Worker processes that are killed and told to stop."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

import rota
from rota.upkeep.asker import LATE_S
from rota.upkeep.reaper import Reaper
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import notes
from tests.worker.table import (
    Connection,
    connected,
    over,
    put,
    put_many,
    rows,
    status,
    value,
)

pytestmark = pytest.mark.system

NOT_UNCHARGED = (
    "select status, attempts, count(*) from rota.job group by 1, 2 having status <> 'queued' "
    "or attempts <> 0"
)


@rule("M2", "M31", "M33")
def test_a_job_of_a_worker_that_was_killed_is_recovered_within_its_lease_and_five_seconds(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    killed = start_worker(database, concurrency=1)
    job = put(connection, "hold", until=str(tmp_path / "go"))
    killed.until_noted(f"start {job}")
    other = start_worker(database, concurrency=1)

    killed.kill()
    # A lease of one second, which a worker that the machine holds up for as long would not keep
    # until it is killed.
    [(killed_at,)] = rows(
        connection,
        "update rota.job set locked_until = clock_timestamp() + interval '1 second' "
        "returning clock_timestamp()",
    )
    other.until_noted(f"start {job}")
    (tmp_path / "go").touch()
    eventually(lambda: status(connection, job) == "succeeded")

    [(finished_at, *lost)] = rows(
        connection,
        "select finished_at, worker, attempt, error_type, outcome from rota.attempt where job = %s",
        job,
    )
    assert lost == [killed.name(connection), 1, "LeaseExpired", "queued"]
    assert Reaper.asked_every_s + LATE_S < 5, "of how often it looks"
    assert (finished_at - killed_at).total_seconds() >= 1
    assert rows(
        connection, "select locked_by, attempts from rota.job_history where id = %s", job
    ) == [(other.name(connection), 1)]
    assert notes(killed.notes_file) == [
        (killed.pid, f"start {job}"),
        (other.pid, f"start {job}"),
        (other.pid, f"end {job}"),
    ]


@rule("M83")
def test_a_worker_told_to_stop_claims_nothing_more_and_finishes_what_runs(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database, concurrency=5)
    running = [
        put(connection, job_type, until=str(tmp_path / "go")) for job_type in ("hold", "block")
    ]
    for job in running:
        worker.until_noted(f"start {job}")

    worker.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    left = put(connection, "quick")
    (tmp_path / "go").touch()

    assert worker.wait() == 0, worker.log
    assert [status(connection, job) for job in running] == ["succeeded", "succeeded"]
    assert rows(
        connection, "select status, attempts, claims from rota.job where id = %s", left
    ) == [("queued", 0, 0)]
    assert rows(connection, "select stopped_at is not null, running from rota.worker") == [
        (True, 0)
    ]


@rule("M83")
def test_a_terminal_that_closes_stops_a_worker_and_never_skips_its_grace_period(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database)
    first, job = (put(connection, "hold", until=str(tmp_path / file)) for file in ("first", "go"))
    for one in (first, job):
        worker.until_noted(f"start {one}")
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


@rule("M2", "M83")
def test_a_worker_stopped_under_load_leaves_no_job_running_or_charged(
    start_worker: StartWorker, database: str, connection: Connection
) -> None:
    had_some_left = False
    while not had_some_left:  # else it had done them all before it heard the signal
        put_many(connection, "quick", 5_000)
        before = over(connection)
        worker = start_worker(database, concurrency=10)
        eventually(lambda before=before: over(connection) > before + 200)  # type: ignore[misc]
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log
        assert rows(connection, NOT_UNCHARGED) == []
        had_some_left = rows(connection, "select from rota.job limit 1") != []
    started = Counter(what for _, what in notes(worker.notes_file))
    assert set(started.values()) == {1}
    assert len(started) == over(connection)


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
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a container
    monkeypatch.setattr(socket, "gethostname", lambda: "shop-0")
    jobs = rota.Jobs()
    jobs.job("quick")(lambda: None)
    for _ in range(2):
        async with Hand(database, jobs):
            pass
    names = [name for (name,) in rows(connection, "select name from rota.worker")]
    assert len(set(names)) == 2 and all(name.startswith("shop-0:1:") for name in names)
