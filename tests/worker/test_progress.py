"""What handlers say of how far they have come is seen while they run, written seldom, and only by
who holds the job."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import rota
from rota.observe.events import JobCancelled, JobSucceeded
from rota.worker import lease_keeper
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker import heavy
from tests.worker.hand import Hand
from tests.worker.keeper import KeptByHand
from tests.worker.table import Connection, put, rows, value

SEEN = "select progress - 'at' from rota.jobs"


def say(done: float, total: float | None = None, note: str | None = None) -> None:
    """Say it somewhere below the handler."""
    rota.context().progress(done, total, note)


@rule("M72")
async def test_progress_is_seen_while_the_handler_runs(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_S", 3600.0)
    jobs = rota.Jobs()
    go = threading.Event()

    @jobs.job("async")
    async def steps() -> None:
        say(1, 3, "first\nof all")
        await asyncio.to_thread(go.wait, 60)
        say(2, 3)
        await asyncio.Event().wait()

    @jobs.job("plain")
    def steps_in_a_thread() -> None:
        say(1, 3, "first\nof all")
        go.wait(60)
        say(2, 3)
        while rota.context().cancelled is None:
            time.sleep(0.01)

    async def until_seen(seen: dict[str, object]) -> None:
        await aeventually(lambda: rows(connection, SEEN) == [(seen,)] * 2)

    # Without NOTIFY nothing else wakes the lease keeper, and with such a lease it sleeps for ten
    # minutes.
    async with Hand(database, jobs, notify=False, lease_s=7200, grace_s=0.0):
        for handler in ("async", "plain"):
            put(connection, handler)
        await until_seen({"done": 1, "total": 3, "note": "first of all"})
        go.set()
        await until_seen({"done": 2, "total": 3, "note": None})
        assert rows(connection, "select distinct status from rota.jobs") == [("running",)]
    # It stays until another attempt says something.
    await until_seen({"done": 2, "total": 3, "note": None})


@rule("M72")
async def test_it_is_written_once_a_second_at_most_and_the_latest_is_not_lost(
    database: str, connection: Connection
) -> None:
    kept = KeptByHand(database, connection)
    context = kept.hold()
    await kept.keeper.tick()
    seen = []
    for done in range(1, 41):  # ten seconds
        context.progress(done)
        await kept.keeper.tick()
        seen.append(value(connection, "select progress ->> 'done' from rota.jobs"))
        kept.clock.advance(lease_keeper.PROGRESS_S / 4)
    pause_s = await kept.keeper.tick()
    assert len({*seen}) <= 11 and seen.count(None) <= 4, seen
    assert pause_s is not None and pause_s > lease_keeper.PROGRESS_S, "nothing is left to write"
    await kept.keeper.close()
    assert value(connection, SEEN) == {"done": 40, "total": None, "note": None}


@pytest.mark.nightly
@rule("M72")
async def test_the_last_report_of_another_process_is_written_with_the_outcome(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lease_keeper, "PROGRESS_S", 3600.0)  # the first report only
    go = tmp_path / "go"
    async with Hand(database, heavy.jobs) as hand:
        job = put(connection, "reports its end", go=str(go))
        first = {"done": 7, "total": 10, "note": None}
        await aeventually(lambda: rows(connection, SEEN) == [(first,)], 60)
        go.touch()
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, SEEN) == [({"done": 10, "total": 10, "note": None},)]


@pytest.mark.nightly
@rule("M72", "M87")
async def test_handlers_in_processes_of_their_own_report_progress_and_are_cancelled(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with Hand(database, heavy.jobs) as hand:
        plain = put(connection, "reports progress", go=str(go))
        awaits = put(connection, "awaits")

        async def until_seen(job: int, done: int, total: int | None, note: str | None) -> None:
            seen = {"done": done, "total": total, "note": note}
            read = f"{SEEN} where id = %s"
            await aeventually(lambda: value(connection, read, job) == seen, 60)

        await until_seen(plain, 9_999, None, "loading")
        go.touch()
        await until_seen(plain, 10_000, 20_000, None)
        await until_seen(awaits, 1, 2, None)
        connection.execute("select rota.job_cancel(array[%s, %s]::bigint[], 'no')", [plain, awaits])
        for job in (plain, awaits):
            assert (await hand.heard(JobCancelled, job=job)).reason == "no"
    assert rows(connection, "select distinct status from rota.jobs") == [("cancelled",)]
