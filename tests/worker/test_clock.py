"""A worker whose clock is wrong. Not its clock is moved but the database's: what counts is that the two disagree."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.events import JobDead, JobSucceeded
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value

pytestmark = pytest.mark.parametrize("hours", [-3, 3])


def disagree(connection: Connection, hours: int) -> None:
    connection.execute(
        "create or replace function rota.clock() returns timestamptz language sql stable parallel safe"
        f" as $$ select pg_catalog.statement_timestamp() + interval '{hours} hours' $$".encode()
    )


@rule("M22")
async def test_a_job_is_due_by_the_databases_clock(database: str, connection: Connection, hours: int) -> None:
    disagree(connection, hours)
    jobs = rota.Jobs()

    @jobs.job("quick")
    async def quick() -> None: ...

    app = rota.App(database, jobs=[jobs])
    there = datetime.now(UTC) + timedelta(hours=hours)
    due = (await quick.using(run_at=there + timedelta(seconds=1)).aenqueue()).id
    delayed = (await quick.using(delay="1s").aenqueue()).id
    not_due = (await quick.using(run_at=there + timedelta(minutes=1)).aenqueue()).id
    await app.aclose()
    async with Hand(database, jobs) as hand:
        for job in (put(connection, "quick"), due, delayed):
            await hand.heard(JobSucceeded, job=job, timeout_s=4)
    assert status(connection, not_due) == "queued"
    late = value(connection, "select max(abs(extract(epoch from started_at - run_at))) < 2 from rota.job_history")
    assert late is True, "started_at, too, is by the database's clock"


@rule("M22", "M31", "M33")
async def test_a_lease_is_renewed_and_expires_by_the_databases_clock(database: str, connection: Connection, hours: int) -> None:
    disagree(connection, hours)
    jobs = rota.Jobs()
    go = asyncio.Event()

    @jobs.job("slow", lease="1s")
    async def slow() -> None:
        await go.wait()

    jobs.job("left")(slow.func)
    put(connection, "slow")
    async with Hand(database, jobs) as hand:
        leases: set[object] = set()

        def renewed() -> bool:
            assert rows(connection, "select id from rota.job_reap('-infinity', 10)") == []
            leases.add(value(connection, "select max(locked_until) from rota.job"))
            return len(leases) >= 6

        await asyncio.to_thread(eventually, renewed)
        assert value(connection, "select locked_until - rota.clock() between interval '0' and interval '1 s' from rota.job") is True
        connection.execute(
            "insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, start_recorded)"
            " values ('left', 'running', 'gone', rota.clock() + interval '1 second', 1, 1, true)"
        )
        await asyncio.to_thread(eventually, lambda: rows(connection, "select from rota.job where status = 'failed'"), 6)
        go.set()
        await hand.heard(JobSucceeded)
    assert value(connection, "select run_at > rota.clock() from rota.job") is True


@rule("M22", "M36")
async def test_a_job_expires_by_the_databases_clock(database: str, connection: Connection, hours: int) -> None:
    disagree(connection, hours)
    jobs = rota.Jobs()

    @jobs.job("quick", expires="1m")
    async def quick() -> None: ...

    app = rota.App(database, jobs=[jobs])
    fresh, stale = (await quick.aenqueue()).id, (await quick.aenqueue()).id
    await app.aclose()
    connection.execute("update rota.job set expires_at = rota.clock() - interval '1 second' where id = %s", [stale])
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, job=fresh)
        dead = await hand.heard(JobDead, job=stale)
    assert dead.failure.error_type == "Expired"
    assert rows(connection, "select status, attempts, started_at from rota.job") == [("dead", 0, None)]
