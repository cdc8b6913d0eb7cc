"""Breakers in a worker: who waits, who tries, and what is written for whom.

What counts is pure: `tests/pure/test_endpoint.py`; what opens one is SQL: `tests/store`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota.observe.events import (
    BreakerClosed,
    BreakerOpened,
    DatabaseLost,
    JobFailed,
    JobHandedBack,
    JobSucceeded,
)
from rota.worker.gates import breaker
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value

RETRY = rota.Fixed("10m", jitter=0)


@pytest.fixture(autouse=True)
def _looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers see what a test has changed by SQL at once."""
    monkeypatch.setattr(breaker, "SEEN_S", 0.0)


class Shop:
    """Two endpoints whose answers a test sets, and job types that call them."""

    def __init__(self, failures: int = 2) -> None:
        self.error: BaseException | None = ConnectionRefusedError("nobody listens")
        self.calls: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.jobs = rota.Jobs()
        of = rota.Breaker("shop", lambda host: host, failures=failures, open_for="10m")
        for name in ("call", "order"):
            self.jobs.job(name, retry=RETRY, breaker=of)(self._answer)

    async def _answer(self, host: str = "a") -> None:
        self.calls.append(host)
        await self.goes_on.wait()
        if self.error is not None and host == "a":
            raise self.error


async def open_it(connection: Connection, hand: Hand) -> None:
    """Let its breaker open by failures."""
    for _ in range(2):
        put(connection, "call")
    await hand.heard(BreakerOpened)


def end_window(connection: Connection) -> None:
    """Let the time of the open breakers be over."""
    connection.execute("update rota.breaker set open_until = rota.clock() where state = 'open'")


def state(connection: Connection) -> list[tuple[Any, ...]]:
    return rows(connection, "select key, state, openings from rota.breaker")


@rule("M63")
async def test_failures_open_it_for_all_types_one_job_tries_and_its_success_starts_what_waited(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    async with Hand(database, shop.jobs, slots=10) as hand:
        await open_it(connection, hand)
        job = put(connection, "order")
        back = await hand.heard(JobHandedBack, job=job)
        assert back.why == "the breaker shop a is open"
        assert rows(
            connection,
            "select status, attempts, waits_for, waits_since is not null, "
            "run_at between rota.clock() + interval '9 min' and rota.clock() + interval '12 min' "
            "from rota.job where id = %s",
            job,
        ) == [("queued", 0, "breaker shop a", True, True)]
        await hand.heard(JobSucceeded, job=put(connection, "order", host="b"))
        assert state(connection) == [("a", "open", 1)], "a success writes nothing"
        shop.calls.clear()
        shop.goes_on.clear()
        end_window(connection)
        waiting = [put(connection, "order") for _ in range(5)]
        await hand.heard(JobHandedBack, 1 + 4)
        await asyncio.to_thread(eventually, lambda: shop.calls == ["a"])
        shop.error = None
        shop.goes_on.set()
        await hand.heard(BreakerClosed)
        for one in (job, *waiting):
            await hand.heard(JobSucceeded, job=one)
    assert [row[1] for row in state(connection)] == ["closed"]


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
async def test_a_failure_is_recorded_once_the_database_is_back_also_by_a_worker_that_stops(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    shop.goes_on.clear()
    async with Hand(database, shop.jobs) as hand:
        jobs = [put(connection, "call") for _ in range(2)]
        await asyncio.to_thread(eventually, lambda: len(shop.calls) == 2)
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'rota gates'"
        )
        hand.worker.stop()
        shop.goes_on.set()
    assert state(connection) == [("a", "open", 1)]
    assert [status(connection, job) for job in jobs] == ["failed", "failed"]
    assert value(connection, "select count(*) from rota.job where status = 'running'") == 0
