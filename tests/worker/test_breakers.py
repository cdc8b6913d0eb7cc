"""Breakers in a worker: what counts, who waits, who tries, and what is written for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import rota
from rota.observe.events import (
    BreakerClosed,
    BreakerOpened,
    DatabaseLost,
    JobDead,
    JobFailed,
    JobHandedBack,
    JobReaped,
    JobSucceeded,
)
from rota.worker import worker
from rota.worker.gates import breaker
from rota.worker.slots import SlotGroup
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, expire_leases, put, rows, status, value

RETRY = rota.Fixed("10m", jitter=0)
BREAKER = rota.Breaker("shop", failures=2, open_for="10m", max_open="1h")


@pytest.fixture(autouse=True)
def _looks_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers see what a test has changed by SQL at once, and wait for a row that it locks."""
    monkeypatch.setattr(breaker, "SEEN_S", 0.0)
    monkeypatch.setattr(worker, "GATES_LOCK_S", 30.0)


class Shop:
    """An endpoint whose answers a test sets, and job types that call it."""

    def __init__(self, of: rota.Breaker = BREAKER, timeout: str = "5m") -> None:
        self.error: BaseException | None = ConnectionRefusedError("nobody listens")
        self.calls: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.jobs = rota.Jobs()

        @self.jobs.job("call", retry=RETRY, breaker=of, timeout=timeout)
        async def call(host: str = "a") -> None:
            await self._answer(host)

        @self.jobs.job("plain")
        async def plain() -> None: ...

        @self.jobs.job("order", retry=RETRY, breaker=of)
        async def order(host: str = "a") -> None:
            await self._answer(host)

    async def _answer(self, host: str) -> None:
        self.calls.append(host)
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error


async def open_it(connection: Connection, hand: Hand, count: int = 2) -> None:
    """Let its breaker open by failures."""
    before = sum(isinstance(event, BreakerOpened) for event in hand.events)
    for _ in range(count):
        put(connection, "call")
    await hand.heard(BreakerOpened, before + 1)


def end_window(connection: Connection) -> None:
    """Let the time of the open breakers be over, and what waits for them be due."""
    connection.execute("update rota.breaker set open_until = rota.clock() where state = 'open'")


@contextmanager
def lock_breakers(database: str) -> Iterator[None]:
    """Lock the rows of all breakers for a block, so that nothing can be recorded."""
    with psycopg.connect(database) as own:
        own.execute("select from rota.breaker for update")
        yield


def waits_for_lock(connection: Connection) -> bool:
    """Whether the gatekeeper of a worker waits for such a row."""
    return bool(
        rows(
            connection,
            "select from pg_stat_activity where datname = current_database() "
            "and application_name = 'rota gates' and wait_event_type = 'Lock'",
        )
    )


def state(connection: Connection) -> list[tuple[Any, ...]]:
    return rows(connection, "select state, openings from rota.breaker")


@rule("M63")
async def test_failures_open_it_and_jobs_of_all_types_that_share_its_name_are_handed_back_uncharged(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        job = put(connection, "order")
        back = await hand.heard(JobHandedBack, job=job)
    assert back.why == "the breaker shop is open"
    assert shop.calls == ["a", "a"]
    assert rows(
        connection,
        "select status, attempts, waits_for, waits_since is not null, "
        "run_at between rota.clock() + interval '9 min' and rota.clock() + interval '12 min' "
        "from rota.job where id = %s",
        job,
    ) == [("queued", 0, "breaker shop", True, True)]
    [opened] = [event for event in hand.events if isinstance(event, BreakerOpened)]
    assert opened.text() == (
        "breaker shop is open for 10 min, after 2 failures: ConnectionRefusedError: nobody listens"
    )


@rule("M63")
async def test_failures_of_the_job_itself_do_not_count(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    shop.error = ValueError("no such customer")
    async with Hand(database, shop.jobs) as hand:
        for _ in range(5):
            put(connection, "call")
        await hand.heard(JobFailed, 5)
    assert state(connection) == []


@rule("M63")
async def test_timeouts_count(database: str, connection: Connection) -> None:
    shop = Shop(timeout="100ms")
    shop.goes_on.clear()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
    assert state(connection) == [("open", 1)]


@rule("M63")
async def test_a_retry_that_a_handler_asks_for_counts_by_its_cause(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    retry = rota.Retry("the shop is away")
    retry.__cause__ = ConnectionResetError()
    shop.error = retry
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
    assert state(connection) == [("open", 1)]


@rule("M63")
async def test_a_success_writes_nothing_while_it_is_closed(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    shop.error = None
    async with Hand(database, shop.jobs) as hand:
        for _ in range(20):
            put(connection, "call")
        await hand.heard(JobSucceeded, 20)
    connection.execute("select pg_stat_force_next_flush()")
    eventually(
        lambda: value(connection, "select count(*) from rota.worker where stopped_at is not null")
    )
    assert rows(
        connection,
        "select n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables "
        "where schemaname = 'rota' and relname = 'breaker'",
    ) == [(0, 0, 0)]


@rule("M63")
async def test_a_trial_that_succeeds_closes_it_and_those_that_waited_start(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        waiting = [put(connection, "order") for _ in range(3)]
        for job in waiting:
            await hand.heard(JobHandedBack, job=job)
        shop.error = None
        end_window(connection)
        trial = put(connection, "call")
        await hand.heard(JobSucceeded, job=trial)
        for job in waiting:
            await hand.heard(JobSucceeded, job=job)
        [closed] = [event for event in hand.events if isinstance(event, BreakerClosed)]
        assert closed.text() == "breaker shop is closed: its trial succeeded"
    assert [row[0] for row in state(connection)] == ["closed"]


@rule("M63")
async def test_one_job_tries_while_the_others_go_back(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs, slots=10) as hand:
        await open_it(connection, hand)
        shop.calls.clear()
        shop.goes_on.clear()
        end_window(connection)
        for _ in range(10):
            put(connection, "order")
        await hand.heard(JobHandedBack, 9)
        await asyncio.to_thread(eventually, lambda: shop.calls == ["a"])
        shop.goes_on.set()
        await hand.heard(BreakerOpened, 2)
    assert state(connection) == [("open", 2)]
    [_, again] = [event for event in hand.events if isinstance(event, BreakerOpened)]
    assert again.for_s > 1_190
    assert "its trial failed" in again.text()


@rule("M63")
async def test_a_trial_that_is_told_to_wait_keeps_it_open_and_the_others_do_not_call(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        shop.error = rota.RateLimited("429", retry_after="10m")
        end_window(connection)
        put(connection, "call")
        await hand.heard(BreakerOpened, 2)
        other = put(connection, "call")
        await hand.heard(JobHandedBack, job=other)
    assert len(shop.calls) == 3
    assert state(connection) == [("open", 2)]


@rule("M63")
async def test_a_trial_whose_job_is_at_fault_lets_another_try_at_once(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        waiting = put(connection, "order")
        await hand.heard(JobHandedBack, job=waiting)
        shop.error = ValueError("no such customer")
        end_window(connection)
        trial = put(connection, "call")
        await hand.heard(JobFailed, job=trial)
        await hand.heard(JobFailed, job=waiting)  # it was called back
    assert state(connection) == [("open", 1)]


@rule("M63")
async def test_a_job_whose_worker_was_lost_does_not_keep_its_trial(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        end_window(connection)
        # Another worker took the trial, and was killed.
        lost = put(connection, "strange")
        connection.execute(
            "update rota.job set status = 'running', claims = 1, attempts = 1, locked_by = 'gone', "
            "locked_until = rota.clock() + interval '1 h' where id = %s",
            [lost],
        )
        connection.execute(
            "update rota.breaker set state = 'trial', trial_job = %s, trial_claim = 1, "
            "open_until = rota.clock() + interval '1 h'",
            [lost],
        )
        shop.error = None
        early = put(connection, "call")
        back = await hand.heard(JobHandedBack, job=early)
        assert "another job tries" in back.why
        expire_leases(connection)
        await hand.heard(JobReaped, job=lost)
        await hand.heard(JobSucceeded, job=put(connection, "call"))
        await hand.heard(JobSucceeded, job=early)


@rule("M63")
async def test_each_key_is_a_breaker_of_its_own(database: str, connection: Connection) -> None:
    shop = Shop(rota.Breaker("shop", lambda host: host, failures=2, open_for="10m"))
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        shop.error = None
        other = put(connection, "call", host="b")
        same = put(connection, "call", host="a")
        await hand.heard(JobSucceeded, job=other)
        await hand.heard(JobHandedBack, job=same)
    assert value(connection, "select waits_for from rota.job where id = %s", same) == (
        "breaker shop a"
    )


@rule("M63")
async def test_a_job_whose_key_cannot_be_computed_is_dead_with_the_reason(
    database: str, connection: Connection
) -> None:
    def find_host(host: str) -> str:
        raise LookupError(f"no host {host}")

    shop = Shop(rota.Breaker(key=find_host))
    async with Hand(database, shop.jobs) as hand:
        dead = await hand.heard(JobDead, job=put(connection, "call"))
    assert shop.calls == []
    assert "its breaker key function at" in dead.failure.message
    assert "raised LookupError: no host a" in dead.failure.message
    assert "test_breakers.py" in dead.failure.message


@rule("M63")
async def test_no_job_of_a_failing_key_starts_until_its_failure_is_recorded(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prefetch(group: SlotGroup, now: float) -> None:
        group.target = group.ordinary_target = 5  # as after many short jobs

    monkeypatch.setattr(SlotGroup, "measure", prefetch)
    shop = Shop(rota.Breaker("shop", failures=1, open_for="10m"))
    shop.goes_on.clear()
    connection.execute(
        "insert into rota.breaker (name, key, forget_at) values ('shop', '', 'infinity')"
    )
    async with Hand(database, shop.jobs, slots=1, buffer_s=60.0) as hand:
        [group] = hand.worker.parts.executor.groups
        connection.execute(
            "insert into rota.job (queue, job_type, priority) "
            "select 'default', 'call', 0 from generate_series(1, 5)"
        )
        await asyncio.to_thread(eventually, lambda: group.waiting == 4)
        with lock_breakers(database):
            shop.goes_on.set()
            await asyncio.to_thread(eventually, lambda: waits_for_lock(connection))
            assert (shop.calls, group.running) == (["a"], 0)
        await hand.heard(JobHandedBack, 4)
    assert shop.calls == ["a"]


@rule("M63")
async def test_the_outcome_of_a_trial_is_written_after_its_record(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs) as hand:
        await open_it(connection, hand)
        end_window(connection)
        shop.goes_on.clear()
        shop.calls.clear()
        trial = put(connection, "call")
        await asyncio.to_thread(eventually, lambda: bool(shop.calls))
        with lock_breakers(database):
            shop.goes_on.set()
            await hand.heard(JobSucceeded, job=put(connection, "plain"))
            await asyncio.to_thread(eventually, lambda: waits_for_lock(connection))
            await hand.heard(JobSucceeded, job=put(connection, "plain"))
            assert status(connection, trial) == "running"
        await hand.heard(JobFailed, job=trial)


@rule("M63")
async def test_a_reset_by_hand_starts_what_waits(database: str, connection: Connection) -> None:
    shop = Shop()
    app = rota.App(database)
    async with Hand(database, shop.jobs, poll_s=0.1) as hand:
        await open_it(connection, hand)
        job = put(connection, "order")
        await hand.heard(JobHandedBack, job=job)
        shop.error = None
        assert await app.breakers.areset("shop", why="it works again") == 1
        await hand.heard(JobSucceeded, job=job)
    await app.aclose()


@rule("M63", "M32")
async def test_a_database_that_refuses_to_record_does_not_keep_outcomes(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'not now'; end $$; "
        "create trigger refuse before insert on rota.breaker "
        "for each row execute function refuse()"
    )
    async with Hand(database, shop.jobs) as hand:
        job = put(connection, "call")
        await hand.heard(JobFailed, job=job)
        await hand.lost("gatekeeper")
        connection.execute("drop trigger refuse on rota.breaker")
        await open_it(connection, hand)
    assert any(isinstance(event, DatabaseLost) for event in hand.events)


@rule("M63", "M32")
async def test_a_failure_is_recorded_once_the_database_is_back(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    shop.goes_on.clear()
    async with Hand(database, shop.jobs) as hand:
        jobs = [put(connection, "call") for _ in range(2)]
        await asyncio.to_thread(eventually, lambda: len(shop.calls) == 2)
        _end_connections(connection, "gates")
        shop.goes_on.set()
        await hand.heard(BreakerOpened)
        for job in jobs:
            await hand.heard(JobFailed, job=job)
    assert [status(connection, job) for job in jobs] == ["failed", "failed"]


def _end_connections(connection: Connection, role: str) -> None:
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and application_name = %s",
        [f"rota {role}"],
    )


async def test_a_worker_that_stops_records_what_its_jobs_came_to(
    database: str, connection: Connection
) -> None:
    shop = Shop(rota.Breaker("shop", failures=1))
    shop.goes_on.clear()
    async with Hand(database, shop.jobs) as hand:
        job = put(connection, "call")
        await asyncio.to_thread(eventually, lambda: bool(shop.calls))
        hand.worker.stop()
        shop.goes_on.set()
    assert state(connection) == [("open", 1)]
    assert status(connection, job) == "failed"
