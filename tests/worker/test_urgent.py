"""Slow work leaves room for urgent work, by default."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import rota
from rota.observe.events import JobClaimed, JobSucceeded
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put_many, rows, value

pytestmark = pytest.mark.waits

PAGE_S = 5.0
URGENT = 50


class Site:
    """Report pages of five seconds each, and the mail that must not wait for them."""

    def __init__(self, *, threads: bool = False, priority: int = 0, queue: str = "default") -> None:
        self.jobs = rota.Jobs()
        self.begun: list[int] = []
        self.over = threading.Event()

        if threads:

            @self.jobs.job("page", takes_context=True, priority=priority)
            def page(ctx: rota.Context) -> None:
                self.begun.append(ctx.job.id)
                self.over.wait(PAGE_S)

        else:

            @self.jobs.job("page", takes_context=True, priority=priority)
            async def apage(ctx: rota.Context) -> None:
                self.begun.append(ctx.job.id)
                await asyncio.sleep(PAGE_S)

        @self.jobs.job("reset", queue=queue, priority=URGENT)
        async def reset() -> None: ...


def put_reset(connection: Connection, priority: int = URGENT, queue: str = "default") -> int:
    [(id_,)] = rows(
        connection,
        "insert into rota.job (job_type, queue, priority) values ('reset', %s, %s) returning id",
        queue,
        priority,
    )
    return int(id_)


async def waited_s(connection: Connection, hand: Hand, job: int) -> float:
    """Wait for a job's success; return the seconds from its INSERT to its handler's start."""
    await hand.heard(JobSucceeded, job=job)
    found = value(
        connection,
        "select extract(epoch from started_at - created_at)::float8 from rota.job_history "
        "where id = %s",
        job,
    )
    assert isinstance(found, float)
    return found


async def until_begun(site: Site, count: int) -> None:
    """Wait until so many pages have begun: threads say nothing to a loop."""
    async with asyncio.timeout(30):
        while len(site.begun) < count:
            await asyncio.sleep(0.01)


@rule("M61")
@pytest.mark.parametrize("threads", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(("slots", "ordinary"), [(10, 8), (2, 1)])
async def test_ten_thousand_pages_of_five_seconds_delay_a_reset_by_no_more_than_a_second(
    database: str, connection: Connection, slots: int, ordinary: int, *, threads: bool
) -> None:
    site = Site(threads=threads)
    put_many(connection, "page", 10_000)
    async with Hand(database, site.jobs, slots=slots, grace_s=0.0) as hand:
        await until_begun(site, ordinary)
        waits = []
        for pause_s in (0.0, 0.3, 1.5):
            await asyncio.sleep(pause_s)
            waits.append(await waited_s(connection, hand, put_reset(connection)))
        assert max(waits) <= 1.0
        assert len(site.begun) == ordinary, "they leave room"
        site.over.set()


async def claimed(hand: Hand, job_type: str) -> int:
    return sum(isinstance(one, JobClaimed) and one.job_type == job_type for one in hand.events)
