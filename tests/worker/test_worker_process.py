"""Worker processes that are killed and told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import rota
from rota.observe.events import JobClaimed, JobHandedBack, JobSucceeded
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
    expire_leases,
    move_clock,
    over,
    put,
    put_many,
    rows,
    status,
    value,
)

pytestmark = [pytest.mark.waits, pytest.mark.system]

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
    assert Reaper.asked_every_s + LATE_S < 5
    assert 1 <= (finished_at - killed_at).total_seconds() < 1 + 5 + 10, (
        "and as much as a loaded machine may need"
    )
    assert rows(
        connection, "select locked_by, attempts from rota.job_history where id = %s", job
    ) == [(other.name(connection), 1)]
    assert notes(killed.notes_file) == [
        (killed.pid, f"start {job}"),
        (other.pid, f"start {job}"),
        (other.pid, f"end {job}"),
    ]


@pytest.mark.slow
@rule("M33", "M42")
def test_a_job_that_kills_its_worker_on_every_attempt_ends_dead(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "hold", until=str(tmp_path / "never"))
    connection.execute("update rota.job set max_attempts = 2 where id = %s", [job])
    for _ in range(3):
        worker = start_worker(database, concurrency=1)
        worker.until_noted(f"start {job}")
        worker.kill()
        expire_leases(connection)
    start_worker(database, concurrency=1)
    eventually(lambda: status(connection, job) == "dead")
    assert rows(
        connection, "select attempt, outcome from rota.attempt where job = %s order by claim", job
    ) == [
        (1, "queued"),
        (1, "failed"),
        (2, "dead"),
    ]


@rule("M83")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_told_to_stop_claims_nothing_more_and_finishes_what_runs(
    start_worker: StartWorker,
    database: str,
    connection: Connection,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    worker = start_worker(database, concurrency=5)
    running = [
        put(connection, job_type, until=str(tmp_path / "go")) for job_type in ("hold", "block")
    ]
    for job in running:
        worker.until_noted(f"start {job}")

    worker.signal(number)
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


@rule("M83")
def test_a_worker_under_nohup_outlives_its_terminal(
    start_worker: StartWorker, database: str, connection: Connection
) -> None:
    worker = start_worker(database, around=("nohup",))
    worker.signal(signal.SIGHUP)
    worker.until_noted(f"start {put(connection, 'quick')}")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log


@rule("M83")
async def test_what_a_stopped_worker_had_not_started_goes_uncharged_to_another_at_once(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    begun, go = asyncio.Event(), asyncio.Event()

    @jobs.job("quick")
    async def quick() -> None: ...

    @jobs.job("hold")
    async def hold() -> None:
        begun.set()
        await go.wait()

    # In one transaction: a fast worker could finish the first jobs before the others are there.
    with connection.transaction():
        put_many(connection, "quick", 1000)  # a worker in full swing claims ahead …
        held = [put(connection, "hold") for _ in range(5)]
    async with Hand(database, jobs, slots=1, grace_s=60.0, buffer_s=60.0) as stopped:
        await asyncio.wait_for(begun.wait(), 30)
        await stopped.heard(JobClaimed, job=held[1])  # … what waits for one that does not end
        async with Hand(database, jobs, slots=10) as other:
            stopped.worker.stop()
            for job in held[1:]:
                await other.heard(JobClaimed, job=job)
            go.set()
            await other.heard(JobSucceeded, 4)
    assert [event.job for event in stopped.events if isinstance(event, JobHandedBack)][:1] == [
        held[1]
    ]

    assert value(connection, "select count(*) from rota.attempt") == 0
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    assert rows(connection, "select locked_by from rota.job_history where id = %s", held[0]) == [
        (stopped.name,)
    ]
    assert over(connection) == 1005


@rule("M2", "M83")
def test_a_worker_stopped_under_load_leaves_no_job_running_or_charged(
    start_worker: StartWorker, database: str, connection: Connection
) -> None:
    had_some_left = []
    for _ in range(3):
        put_many(connection, "quick", 7_000)
        before = over(connection)
        worker = start_worker(database, concurrency=10)
        eventually(lambda before=before: over(connection) > before + 500, 30)  # type: ignore[misc]
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log
        assert rows(connection, NOT_UNCHARGED) == []
        had_some_left.append(rows(connection, "select from rota.job limit 1") != [])
    assert any(had_some_left), "it was stopped under load"
    started = Counter(what for _, what in notes(worker.notes_file))
    assert set(started.values()) == {1}
    assert len(started) == over(connection)


@pytest.mark.slow
@rule("M2", "M20", "M88")
def test_an_import_of_10_000_jobs_that_commits_20_seconds_late_reaches_every_worker(
    start_worker: StartWorker, database: str, connection: Connection
) -> None:
    workers = [start_worker(database, concurrency=10) for _ in range(2)]
    with psycopg.connect(database) as importing:
        put_many(importing, "quick", 10_000)
        for done in range(100, 2_100, 100):  # the workers are busy, and their frontiers move on
            move_clock(connection, done / 100)
            put_many(connection, "quick", 100)
            eventually(lambda done=done: over(connection) == done)  # type: ignore[misc]
        importing.commit()
        [(committed_at,)] = rows(connection, "select rota.clock()")
    eventually(lambda: over(connection) == 12_000, 180)

    imported = (
        "select locked_by, count(*), min(started_at) from rota.job_history where id <= 10000 "
        "group by 1"
    )
    shares = {
        name: (count, (first - committed_at).total_seconds())
        for name, count, first in rows(connection, imported)
    }
    assert set(shares) == {worker.name(connection) for worker in workers}
    # The look that is deep enough comes every 16 s at the latest, unless a machine that is busy
    # makes looks dear; what the first one finds, it tells the other.
    assert all(count > 1_000 and after_s < 60 for count, after_s in shares.values()), shares
    assert len(notes(workers[0].notes_file)) == 12_000


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
@pytest.mark.parametrize("drain", [False, True])
def test_a_second_signal_ends_the_grace_period_at_once(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path, drain: bool
) -> None:
    jobs = [
        put(connection, job_type, until=str(tmp_path / "never")) for job_type in ("hold", "block")
    ]
    worker = start_worker(
        database, concurrency=5, grace="10m", **({"drain": True, "signals": True} if drain else {})
    )
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


@rule("M2", "M83")
def test_a_thread_that_does_not_stop_keeps_neither_the_process_nor_its_job(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database, concurrency=1, grace="0.3s")
    job = put(connection, "block", until=str(tmp_path / "go"))
    worker.until_noted(f"start {job}")

    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log
    assert rows(connection, "select status, attempts from rota.job") == [("queued", 0)]

    other = start_worker(database, concurrency=1)
    other.until_noted(f"start {job}")
    (tmp_path / "go").touch()
    eventually(lambda: status(connection, job) == "succeeded")
