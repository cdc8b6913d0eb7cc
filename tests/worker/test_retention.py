"""Retention while everything else continues: no session waits for it, even if a transaction stays
open or retention is interrupted."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest

import rota
from rota.observe.events import (
    Bus,
    DeadArchived,
    Event,
    JobSucceeded,
    PartitionDropped,
    WorkerStarted,
)
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep import retention, upkeep_set
from rota.upkeep.retention import Retention
from tests.store.planned import move_clock
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value

KEPT_DAYS = 14


@pytest.fixture(autouse=True)
def a_day(connection: Connection) -> None:
    """It is a few minutes after midnight of the day on which the database was migrated, and stays
    that day, however late the test runs."""
    query = (
        "create table public.begun as select to_date(min(right(relname, 8)), 'YYYYMMDD') as day "
        "from pg_class where relname ~ '^job_history_[0-9]{8}$'"
    )
    connection.execute(query)
    ahead(connection, 0)


def day(connection: Connection, ahead: int = 0) -> date:
    """The day on which the test begins, or so many days later."""
    [(begun,)] = rows(connection, "select day from public.begun")
    return begun + timedelta(days=ahead)  # type: ignore[no-any-return]


def ahead(connection: Connection, later: int, *, made: bool = False) -> None:
    """Let the database's clock be so many days ahead, a few minutes after midnight. `made`: as are
    the partitions of that week; to make all of them at once may take a busy server longer than a
    step of retention may."""
    begun = day(connection)
    gone = (
        datetime.now(UTC)
        - datetime(begun.year, begun.month, begun.day, tzinfo=UTC)
        - timedelta(minutes=5)
    )
    move_clock(connection, f"{later} days {-gone.total_seconds()} s")
    if made:  # 0: another session is at it
        make, last = "select rota.partitions_ensure(%s)", ops.partitions.PARTITION_DAYS
        eventually(lambda: value(connection, make, last) or days(connection)[-1] == later + last)


def days(connection: Connection, table: str = "job_history") -> list[int]:
    """The partitions of a table, attached or not, as days from the first on."""
    query = (
        "select to_date(right(relname, 8), 'YYYYMMDD') from pg_class where relkind = 'r' "
        "and relname ~ %s"
    )
    return sorted(
        (found - day(connection)).days
        for (found,) in rows(connection, query, f"^{table}_[0-9]{{8}}$")
    )


@rule("M2", "M13")
async def test_days_ahead_that_cannot_be_made_keep_no_worker_from_starting_reaping_or_finishing(
    database: str, connection: Connection, jobs: rota.Jobs
) -> None:
    last = day(connection, ops.partitions.PARTITION_DAYS)
    connection.execute(f"drop table rota.job_history_{last:%Y%m%d}".encode())
    with psycopg.connect(database) as other:
        # The lock of a session that detaches a partition.
        other.execute("lock table rota.job_history in share update exclusive mode")
        other.execute("select pg_advisory_xact_lock(1919906913, hashtext('rota'))")
        connection.execute("set lock_timeout = '1s'")
        assert value(connection, "select rota.partitions_ensure(0)") == 0
        assert value(connection, "select rota.partitions_ensure(7)") == 0, (
            "another session is at it"
        )
        async with Hand(database, jobs) as hand:
            await hand.heard(JobSucceeded, job=put(connection, "quick"))
    with psycopg.connect(database) as other:
        other.execute("lock table rota.job_history in share update exclusive mode")
        async with Hand(database, jobs) as hand:
            lost = await hand.lost("retention")
            assert "canceling statement" in lost.reason
            await hand.heard(JobSucceeded, job=put(connection, "quick"))
            other.rollback()
            await aeventually(lambda: days(connection)[-1] == ops.partitions.PARTITION_DAYS)


@rule("M13")
async def test_a_worker_forgets_what_is_old(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_S", 60)
    ahead(connection, KEPT_DAYS + 1, made=True)
    job = put(connection, "t")
    for statement in (
        "update rota.job set status = 'dead', failed_at = rota.clock() - interval '91 days'",
        "insert into rota.idempotency (job_type, key, job, expires_at) "
        "values ('t', 'k', 1, rota.clock() - interval '1 s')",
        "insert into rota.worker "
        "(name, host, pid, version, release, job_types, queues, heartbeat_at) "
        "values ('gone', 'h', 1, '1', '1', '{}', '{}', rota.clock() - interval '2 days')",
        "insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at) "
        "values ('mail:1', 999, 1, 1, 'skip', rota.clock() - interval '91 days')",
    ):
        connection.execute(statement.encode())
    async with Hand(database, jobs) as hand:
        await hand.heard(DeadArchived)
        await hand.heard(PartitionDropped)
        left = (
            "select from rota.idempotency union all select from rota.effect "
            "union all select from rota.worker where name = 'gone'"
        )
        await aeventually(lambda: rows(connection, left) == [])
    assert rows(connection, "select id, status, resolution->>'by' from rota.jobs") == [
        (job, "dead", "retention")
    ]


@rule("M13", "M80")
async def test_where_only_drains_run_old_days_go_too_and_before_the_jobs(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_set, "EACH_S", 60)
    monkeypatch.setattr(retention, "STEP_S", 60)
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('gone', 'h', 1, '1', '1', '{}', '{}')"
    )
    ahead(connection, KEPT_DAYS + 1)
    hand = Hand(database, jobs, drain=True)
    await hand.run()
    assert [
        type(event) for event in hand.events if isinstance(event, PartitionDropped | WorkerStarted)
    ] == [
        PartitionDropped,
        WorkerStarted,
    ]
    assert days(connection)[0] == 1
    assert rows(connection, "select name from rota.worker") == [(hand.name,)]


@rule("M13", "M80")
async def test_before_its_jobs_a_drain_does_what_needs_no_waiting_and_the_rest_beside_them(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_set, "EACH_S", 60)
    monkeypatch.setattr(retention, "STEP_S", 60)
    # The default of StoreLink, so that a missing argument of this pass shows.
    assert StoreLink.__init__.__kwdefaults__
    monkeypatch.setitem(StoreLink.__init__.__kwdefaults__, "lock_timeout_s", 60)
    ahead(connection, KEPT_DAYS + 1, made=True)
    events: list[Event] = []
    bus, served = Bus(), Database(database)
    bus.on(Event, events.append)
    link = StoreLink(served, "upkeep")
    service = Retention(bus, link, served)
    with psycopg.connect(database) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from rota.jobs")
        async with asyncio.timeout(30):
            await upkeep_set.begin_early([service], Database(database))
        half_off = "select count(*) from pg_inherits where inhdetachpending"
        assert value(connection, half_off) == 1
        assert events == [], "it is not told before the first turn"
    await service.tick()
    await service.close()
    await link.close()
    assert days(connection)[0] == 1
