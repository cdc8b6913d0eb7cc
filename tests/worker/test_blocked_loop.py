"""A handler that keeps the event loop from turning is found and named, and costs nobody a lease."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

import rota
from rota.observe.events import JobSucceeded, LeaseLost, LoopBlocked
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows

pytestmark = pytest.mark.waits


def when_told(hand: Hand, job_type: str | None) -> threading.Event:
    """What happens as soon as somebody is told that handlers of this type keep the loop from turning; None: that no handler does."""
    told = threading.Event()
    hand.worker._bus.on(
        LoopBlocked, lambda event: told.set() if event.job_type == job_type else None
    )
    return told


@rule("M32", "M84")
async def test_a_handler_that_blocks_the_loop_is_named_with_its_place_and_time(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    may_end = asyncio.Event()

    @jobs.job("greedy", lease="6s")
    async def greedy() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            held = "select id, locked_until from rota.job"
            before = set(rows(own, held))
            told.wait(30)
            eventually(lambda: not before & set(rows(own, held)), what="both leases are renewed")
        may_end.set()

    @jobs.job("patient", lease="6s")
    async def patient() -> None:
        await may_end.wait()

    async with Hand(database, jobs) as hand:
        told = when_told(hand, "greedy")
        with connection.transaction():
            other = put(connection, "patient")
            job = put(connection, "greedy")
        await hand.heard(JobSucceeded, job=job, timeout_s=60)
        await hand.heard(JobSucceeded, job=other)
        over = await hand.heard(LoopBlocked, count=2, job=job)
    first = next(
        event for event in hand.events if isinstance(event, LoopBlocked) and event.job == job
    )
    assert (first.job, first.job_type, first.over) == (job, "greedy", False)
    assert (over.job, over.job_type, over.over) == (job, "greedy", True)
    assert 1.0 <= first.blocked_s < over.blocked_s
    assert "test_blocked_loop.py" in first.place and "greedy" in first.place
    assert f"job {job} greedy has been blocking the event loop for " in first.text()
    assert not any(isinstance(event, LeaseLost) for event in hand.events)


@rule("M84")
async def test_a_task_that_a_handler_began_is_that_handlers(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    @jobs.job("grouped")
    async def grouped() -> None:
        async def compute() -> None:
            told.wait(30)

        async with asyncio.TaskGroup() as group:
            group.create_task(compute())

    async with Hand(database, jobs) as hand:
        told = when_told(hand, "grouped")
        job = put(connection, "grouped")
        blocked = await hand.heard(LoopBlocked, count=2, timeout_s=60, job=job)
    assert (blocked.job, blocked.job_type) == (job, "grouped")


@rule("M84")
async def test_what_blocks_the_loop_and_is_no_handler_is_told_too(
    database: str, connection: Connection
) -> None:
    async with Hand(database, _some_jobs()) as hand:
        when_told(hand, None).wait(30)  # the application's own code on the same loop
        blocked = await hand.heard(LoopBlocked, count=2)
    assert (blocked.job, blocked.job_type) == (None, None)


def _some_jobs() -> rota.Jobs:
    jobs = rota.Jobs()
    jobs.job("t")(_nothing)
    return jobs


async def _nothing() -> None: ...
