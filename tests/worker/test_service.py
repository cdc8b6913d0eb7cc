"""The loop of every actor, while the database is away."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import monotonic

import pytest

from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus, DatabaseLost, UpkeepRefused
from rota.runtime.service import Service
from rota.upkeep.refused import NAMED_MAX, NAMED_S, RefusedJobs
from tests.support.rules import rule


class Away(Service):
    """Never reaches the database."""

    name = "away"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.turned = asyncio.Event()
        self.turned_at: list[float] = []

    async def tick(self) -> float | None:
        """Fail."""
        self.turned_at.append(monotonic())
        self.turned.set()
        raise DatabaseUnavailable("no answer")


async def _turns(service: Away, count: int) -> None:
    while len(service.turned_at) < count:
        service.turned.clear()
        await asyncio.wait_for(service.turned.wait(), 30)


@rule("M84")
async def test_a_database_that_is_away_is_asked_at_growing_intervals_whatever_happens_meanwhile_and_told_once() -> (
    None
):
    bus, told = Bus(), list[DatabaseLost]()
    bus.on(DatabaseLost, told.append)
    service = Away(bus)
    running = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(60):
            while len(service.turned_at) < 5:  # jobs end and bells ring
                service.wake()
                await asyncio.sleep(0)
        pauses_s = [after - before for before, after in pairwise(service.turned_at)]
        assert all(
            paused_s > least_s
            for paused_s, least_s in zip(pauses_s, (0.07, 0.14, 0.29, 0.59), strict=True)
        ), f"0.1, 0.2, 0.4 and 0.8 s, each strayed by a quarter at most, not {pauses_s}"
        assert len(told) == 1
    finally:
        service.stop()
        await asyncio.wait_for(running, 30)


@rule("M83")
async def test_whoever_is_in_a_hurry_is_not_kept_by_the_back_off() -> None:
    service = Away(Bus())
    service._back_off_s = service.back_off_most_s = 600.0
    running = asyncio.create_task(service.run())
    await _turns(service, 1)
    service.hurry()
    await _turns(service, 3)
    service.stop()
    await asyncio.wait_for(running, 30)


@rule("M2", "M84")
def test_a_trigger_that_refuses_thousands_of_jobs_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("rota.upkeep.refused.monotonic", lambda: now)
    named: list[int] = []
    bus = Bus()
    bus.on(UpkeepRefused, lambda event: named.append(event.job))
    jobs = RefusedJobs(bus, "claimer")
    for first in range(0, 5_000, 50):
        jobs.tell(dict.fromkeys(range(first, first + 50), "not this one"))
    assert named == list(range(NAMED_MAX))
    now = NAMED_S
    jobs.tell(dict.fromkeys(range(50), "not this one"))
    assert named == list(range(2 * NAMED_MAX)), "the others are named when they are refused again"
