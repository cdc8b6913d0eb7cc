"""Slow work leaves room for urgent work, by default."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import rota
from rota.errors import UsageError
from rota.observe.events import JobClaimed, JobSucceeded, WorkerStarted
from rota.worker.slots import URGENT_S
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put_many, rows, until_asked, value

PAGE_S = 3600.0  # no page ends: what begins has found room
URGENT = 50
RARE: dict[str, Any] = {"poll_least_s": 3600.0, "poll_s": 3600.0}
"""No job is found by a poll."""


class Site:
    """Pages of a report, and mails that must not wait for them."""

    def __init__(self, *, threads: bool = False, page_s: float = PAGE_S, queue: str = "") -> None:
        self.jobs = rota.Jobs()
        self.begun: list[int] = []
        self.is_over = threading.Event()

        async def page(ctx: rota.Context) -> None:
            self.begun.append(ctx.job.id)
            await asyncio.sleep(page_s)

        def plain_page(ctx: rota.Context) -> None:
            self.begun.append(ctx.job.id)
            self.is_over.wait(page_s)

        self.jobs.job("page", takes_context=True)(plain_page if threads else page)

        @self.jobs.job("reset", queue=queue or "default", priority=URGENT)
        async def reset() -> None: ...

    async def until_begun(self, count: int) -> None:
        """Wait until so many pages have begun."""
        await aeventually(lambda: len(self.begun) >= count)


def put(connection: Connection, job_type: str, count: int = 1, **columns: Any) -> list[int]:
    """Insert jobs alike; return their ids."""
    given = {"job_type": job_type, **columns}
    return [
        id_
        for (id_,) in rows(
            connection,
            f"insert into rota.job ({', '.join(given)}) "
            f"select {', '.join(['%s'] * len(given))} from generate_series(1, {count}) "
            "returning id",
            *given.values(),
        )
    ]


async def reset_starts(connection: Connection, hand: Hand, **columns: Any) -> None:
    [reset] = put(connection, "reset", **{"priority": URGENT, **columns})
    await hand.heard(JobSucceeded, job=reset)


def claimed(hand: Hand, job_type: str) -> int:
    return sum(
        isinstance(event, JobClaimed) and event.job_type == job_type for event in hand.events
    )


@rule("M61")
@pytest.mark.parametrize("threads", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(("slots", "ordinary"), [(10, 8), (2, 1)])
async def test_ten_thousand_slow_pages_do_not_delay_a_reset(
    database: str, connection: Connection, slots: int, ordinary: int, *, threads: bool
) -> None:
    site = Site(threads=threads)
    put_many(connection, "page", 10_000)
    async with Hand(database, site.jobs, slots=slots, grace_s=0.0) as hand:
        await site.until_begun(ordinary)
        for _ in range(3):
            await reset_starts(connection, hand)
        assert len(site.begun) == ordinary, "they leave room"
        assert claimed(hand, "page") == ordinary, "and nobody's place is taken in the buffer"
        site.is_over.set()


@rule("M61")
async def test_a_priority_that_no_type_declares_is_found_as_soon_without_notifications(
    database: str, connection: Connection
) -> None:
    site = Site()
    put(connection, "page", 100)
    async with Hand(database, site.jobs, notify=False, grace_s=0.0) as hand:
        await site.until_begun(8)
        for priority in (7, 100, 1):
            await reset_starts(connection, hand, priority=priority)


@rule("M14", "M61")
async def test_a_search_for_urgent_jobs_alone_asks_for_no_notifications(
    database: str, connection: Connection
) -> None:
    """A commit with a NOTIFY holds a lock of the whole database, and this worker is busy."""
    site = Site()
    put(connection, "page", 100)
    async with Hand(database, site.jobs, grace_s=0.0) as hand:
        await site.until_begun(8)
        await asyncio.to_thread(until_asked, connection, "claim", 3)
        asked = "select count(*) from rota.queue where notify_until is not null"
        assert value(connection, asked) == 0
        assert claimed(hand, "page") == 8


@rule("M61")
async def test_urgent_jobs_take_all_slots_and_more_of_them_start_as_one_ends(
    database: str, connection: Connection
) -> None:
    site = Site(page_s=1.5 * URGENT_S)
    put(connection, "page", 12, priority=1)
    async with Hand(database, site.jobs, slots=4, **RARE) as hand:
        await site.until_begun(4)
        await hand.heard(JobSucceeded, count=12)


@rule("M61", "M80")
async def test_a_drain_leaves_room_and_ends_when_all_is_done(
    database: str, connection: Connection
) -> None:
    site = Site(page_s=0.05)
    put(connection, "page", 40)
    hand = Hand(database, site.jobs, slots=5, drain=True)
    resets = put(connection, "reset", 3, priority=URGENT)
    report = await hand.run()
    assert (report.succeeded, len(site.begun), len(resets)) == (43, 40, 3)


def test_slots_for_the_urgent_leave_one_for_others(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota.App(database)
    app.job("page")(lambda: None)
    with pytest.raises(UsageError, match="less than the slots of queue 'b', not 3 of 2"):
        app.drain(queues={"a": 5, "b": 2}, reserved=3)
    monkeypatch.setenv("ROTA_RESERVED", "10")
    said: list[WorkerStarted] = []
    app.on(WorkerStarted, said.append)
    app.drain(concurrency=12)
    app.drain(concurrency=12, reserved=0)
    monkeypatch.setenv("ROTA_RESERVED", "")
    app.drain(concurrency=12)
    assert [event.urgent_slots.split()[0] for event in said] == ["10", "none", "2"]
    app.close()
