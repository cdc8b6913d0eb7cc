"""A worker that is told to stop twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import rota
from tests.support.rules import rule
from tests.worker.hand import Hand


@rule("M83")
async def test_a_lifespan_being_entered_is_cancelled_once_however_often_the_worker_is_stopped(
    database: str,
) -> None:
    entering, tidying, may_go = asyncio.Event(), asyncio.Event(), asyncio.Event()
    tidied = []

    @asynccontextmanager
    async def slow_to_start() -> AsyncIterator[None]:
        entering.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            tidying.set()
            await may_go.wait()
            tidied.append(True)
            raise
        yield

    jobs = rota.Jobs()
    jobs.job("quick")(lambda: None)
    hand = Hand(database, jobs, lifespan=slow_to_start)
    working = asyncio.create_task(hand.run())
    await entering.wait()
    hand.worker.stop()
    await tidying.wait()
    hand.worker.stop_now()
    may_go.set()
    assert (await working).claimed == 0 and tidied == [True]
