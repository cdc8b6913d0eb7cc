"""A worker whose clock is wrong. Not its clock is moved but the database's: what counts is that the
two disagree."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.observe.events import JobDead, JobSucceeded
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, move_clock, put, rows, status, value

pytestmark = [pytest.mark.waits, pytest.mark.parametrize("hours", [-3, 3])]


@rule("M22")
async def test_a_job_is_due_by_the_databases_clock(
    database: str, connection: Connection, hours: int
) -> None:
    move_clock(connection, 3600 * hours)
    jobs = rota.Jobs()

    @jobs.job("quick")
    async def quick() -> None: ...

    app = rota.App(database, jobs=[jobs])
    there = datetime.now(UTC) + timedelta(hours=hours)
    due = (await quick.using(run_at=there + timedelta(seconds=1)).aenqueue()).id
    delayed = (await quick.using(delay="1s").aenqueue()).id
    not_due = (await quick.using(run_at=there + timedelta(hours=1)).aenqueue()).id
    await app.aclose()
    async with Hand(database, jobs) as hand:
        for job in (put(connection, "quick"), due, delayed):
            await hand.heard(JobSucceeded, job=job)
    assert status(connection, not_due) == "queued"
    late = (
        "select bool_and(started_at - run_at between interval '0' and interval '30 minutes') "
        "from rota.job_history"
    )
    assert value(connection, late) is True, "started_at, too, is by the database's clock"


@rule("M22", "M31", "M33")
async def test_a_lease_is_renewed_and_expires_by_the_databases_clock(
    database: str, connection: Connection, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It renews soon, but a lease is long enough for the slowest machine.
    monkeypatch.setattr("rota.worker.lease_keeper.RENEWALS_A_LEASE", 100)
    move_clock(connection, 3600 * hours)
    jobs = rota.Jobs()
    go = asyncio.Event()

    @jobs.job("slow", lease="30s")
    async def slow() -> None:
        await go.wait()

    jobs.job("left", retry=rota.Fixed("1h"))(slow.func)
    slow_one = put(connection, "slow")
    async with Hand(database, jobs) as hand:
        leases: set[object] = set()

        def renewed() -> bool:
            assert rows(connection, "select id from rota.job_reap('-infinity', 10)") == []
            leases.update(
                rows(connection, "select locked_until from rota.job where status = 'running'")
            )
            return len(leases) >= 6

        await asyncio.to_thread(eventually, renewed)
        assert (
            value(
                connection,
                "select locked_until - rota.clock() between interval '0' and interval '30 s' "
                "from rota.job",
            )
            is True
        )
        query = (
            "insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, "
            "start_recorded)"
            " values ('left', 'running', 'gone', rota.clock() + %s::interval, 1, 1, true) "
            "returning id"
        )
        lost, not_yet = value(connection, query, "1 second"), value(connection, query, "1 hour")
        failed = "select from rota.job where status = 'failed' and id = %s"
        await asyncio.to_thread(eventually, lambda: rows(connection, failed, lost))
        go.set()
        await hand.heard(JobSucceeded, job=slow_one)
    assert rows(
        connection, "select id, status, run_at > rota.clock() from rota.job order by id"
    ) == [
        (lost, "failed", True),
        (not_yet, "running", False),
    ]


@rule("M22", "M36")
async def test_a_job_expires_by_the_databases_clock(
    database: str, connection: Connection, hours: int
) -> None:
    move_clock(connection, 3600 * hours)
    jobs = rota.Jobs()

    @jobs.job("quick", expires="1m")
    async def quick() -> None: ...

    app = rota.App(database, jobs=[jobs])
    fresh, stale = (await quick.aenqueue()).id, (await quick.aenqueue()).id
    await app.aclose()
    connection.execute(
        "update rota.job set expires_at = rota.clock() - interval '1 second' where id = %s", [stale]
    )
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, job=fresh)
        dead = await hand.heard(JobDead, job=stale)
    assert dead.failure.error_type == "Expired"
    assert rows(connection, "select status, attempts, started_at from rota.job") == [
        ("dead", 0, None)
    ]
