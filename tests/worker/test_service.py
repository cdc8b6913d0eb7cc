"""The loop of every service, while the database is away; its back-off, and its throttled lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rota.errors import DatabaseUnavailable
from rota.model.back_off import BackOff
from rota.observe.events import Bus, DatabaseLost, UpkeepRefused
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.runtime.throttle import Throttle
from rota.upkeep.quarantine import REPORTED_MAX, REPORTED_S, Quarantine, RefusalLog
from tests.support.clock import ManualClock
from tests.support.rules import rule


class Away(Service):
    """Never reaches the database."""

    name = "away"

    def __init__(self, bus: Bus, clock: Clock) -> None:
        super().__init__(bus, clock)
        self.turns = 0

    async def tick(self) -> float | None:
        """Fail."""
        self.turns += 1
        raise DatabaseUnavailable("no answer")


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Let it run for a block."""
    task = asyncio.create_task(service.run())
    await rest()
    yield
    service.stop()
    await asyncio.wait_for(task, 30)


async def rest() -> None:
    """Turns of the loop, not time: all that does not wait for the clock is done."""
    for _ in range(20):
        await asyncio.sleep(0)


@rule("M84")
async def test_an_unavailable_database_is_asked_at_growing_intervals_and_logged_once() -> None:
    clock, bus, told = ManualClock(), Bus(), list[DatabaseLost]()
    bus.on(DatabaseLost, told.append)
    service = Away(bus, clock)
    async with running(service):
        for turns, pause_s in enumerate((0.1, 0.2, 0.4, 0.8), start=1):
            service.wake()  # a job ends, or a wake-up comes
            clock.advance(pause_s * 0.74)
            await rest()
            assert service.turns == turns, "each pause strays by a quarter at most"
            clock.advance(pause_s * 0.52)
            await rest()
            assert service.turns == turns + 1
    assert len(told) == 1


@rule("M83")
async def test_a_service_that_is_to_turn_now_is_not_kept_by_the_back_off() -> None:
    clock = ManualClock()
    service = Away(Bus(), clock)
    service.back_off = BackOff(600.0, 600.0)
    async with running(service):
        assert service.turns == 1
        service.wake_now()
        await rest()
        assert service.turns == 2


async def test_a_pause_ends_in_time_and_never_early() -> None:
    class Idle(Away):
        async def tick(self) -> float | None:
            self.turns += 1
            return 600.0

    clock = ManualClock()
    service = Idle(Bus(), clock)

    async def turns_after(seconds: float) -> int:
        clock.advance(seconds)
        await rest()
        return service.turns

    async with running(service):
        service.wake_in(10.0)
        service.wake_in(20.0)
        assert (await turns_after(9.9), await turns_after(0.2)) == (1, 2)
        assert await turns_after(100.0) == 2, "it was for the pause before"
        service.wake_in(10.0)
        service.wake()
        assert await turns_after(0.0) == 3


def test_pauses_grow_up_to_the_longest_and_begin_again() -> None:
    back_off = BackOff(0.5, 3.0)
    assert back_off.tries == 0
    assert [back_off.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert back_off.tries > 0
    back_off.tries = 0
    assert back_off.next_s() == 0.5


def test_the_same_thing_is_said_once_in_a_while_and_another_at_once() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 10.0)
    assert [throttle.allows("a"), throttle.allows("a"), throttle.allows("b")] == [True, False, True]
    clock.advance(9.9)
    assert not throttle.allows("a")
    clock.advance(0.1)
    assert throttle.allows("a")
    throttle.reset()
    assert throttle.allows("a")


@rule("M2", "M84")
def test_a_trigger_that_refuses_thousands_of_jobs_does_not_fill_the_log() -> None:
    clock = ManualClock()
    named: list[int] = []
    bus = Bus()
    bus.on(UpkeepRefused, lambda event: named.append(event.job))
    log = RefusalLog(bus, "claimer", clock)
    for first in range(0, 5_000, 50):
        log.report(dict.fromkeys(range(first, first + 50), "not this one"))
    assert named == list(range(REPORTED_MAX))
    clock.advance(REPORTED_S)
    log.report(dict.fromkeys(range(50), "not this one"))
    assert named == list(range(2 * REPORTED_MAX)), (
        "the others are named when they are refused again"
    )


@rule("M2")
def test_a_job_that_is_refused_again_waits_twice_as_long_each_time() -> None:
    clock = ManualClock()
    quarantine: Quarantine[int] = Quarantine(clock, 1.0, 4.0)
    for pause_s in (1.0, 2.0, 4.0, 4.0):
        quarantine.put(7)
        assert (quarantine.find_due(), quarantine.find_waiting()) == ([], [7])
        assert quarantine.next_in_s() == pause_s
        clock.advance(pause_s)
        assert (quarantine.find_due(), quarantine.find_waiting()) == ([7], [])
    clock.advance(4.0)
    quarantine.release_accepted()
    assert quarantine.cases == {}
