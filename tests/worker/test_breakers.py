"""Breakers in a worker: who waits, who tries, and what is written for whom.

What counts is pure: `tests/pure/test_endpoint.py`; what opens one is SQL: `tests/store`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import rota
from rota.observe.events import BreakerOpened, Bus, JobFailed, OutcomeRefused
from rota.runtime.clock import SYSTEM_CLOCK
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.breakers import EndpointReports
from tests.support.job import make_job
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.alone import give, lone_executor
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value


class Shop:
    """An endpoint where nobody listens, and a job type that calls it."""

    def __init__(self) -> None:
        self.calls = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.jobs = rota.Jobs()
        of = rota.Breaker("shop", failures=2, open_for="10m")
        self.jobs.job("call", retry=rota.Fixed("10m", jitter=0), breaker=of)(self._answer)

    async def _answer(self) -> None:
        self.calls += 1
        await self.goes_on.wait()
        raise ConnectionRefusedError("nobody listens")


async def open_it(connection: Connection, hand: Hand) -> None:
    """Let its breaker open by failures."""
    for _ in range(2):
        put(connection, "call")
    await hand.heard(BreakerOpened)


def state(connection: Connection) -> list[tuple[Any, ...]]:
    return rows(connection, "select key, state, openings from rota.breaker")


@rule("M63")
async def test_no_buffered_job_begins_before_its_breaker_is_told_of_a_failure() -> None:
    shop = Shop()
    executor, others = lone_executor()
    link, call = StoreLink(Database(""), "finish"), shop.jobs.types["call"]._declaration
    executor.reports = EndpointReports(Bus(), SYSTEM_CLOCK, link, executor.note_told, lambda: None)
    now = SYSTEM_CLOCK.monotonic()
    first, second = (Attempt(make_job(id=id_), call, now, 60.0) for id_ in (1, 2))
    give(executor, first, second)
    assert await others.ended.get() is first
    await asyncio.sleep(0)
    assert (shop.calls, second.outcome) == (1, None)
    executor.reports.forget(first)
    assert await others.ended.get() is second
    assert shop.calls == 2


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
        assert "not now" in (await hand.heard(OutcomeRefused)).reason
        connection.execute("drop trigger refuse on rota.breaker")
        await open_it(connection, hand)


@rule("M63", "M32")
async def test_a_failure_is_recorded_once_the_database_is_back_also_by_a_worker_that_stops(
    database: str, connection: Connection
) -> None:
    shop = Shop()
    shop.goes_on.clear()
    async with Hand(database, shop.jobs) as hand:
        jobs = [put(connection, "call") for _ in range(2)]
        await aeventually(lambda: shop.calls == 2)
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'rota finish'"
        )
        hand.worker.stop()
        shop.goes_on.set()
    assert state(connection) == [("", "open", 1)]
    assert [status(connection, job) for job in jobs] == ["failed", "failed"]
    assert value(connection, "select count(*) from rota.job where status = 'running'") == 0
