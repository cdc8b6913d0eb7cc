"""What becomes of the slot of a call with many jobs, wherever they end."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import rota
from rota.model.outcome import Expired
from rota.worker.attempt import Attempt
from tests.support.clock import ManualClock
from tests.support.job import DUE
from tests.support.rules import rule
from tests.worker.alone import give, lone_executor
from tests.worker.test_calls import Doc
from tests.worker.test_slots import claimed_job

TIMEOUT_S = 10.0


class Calls:
    """An executor, and a handler that fails if it gets all docs, and otherwise waits."""

    def __init__(self, docs: int, *, slots: int = 1, deaf: tuple[int, ...] = ()) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.go: dict[tuple[int, ...], asyncio.Event] = {}
        jobs = rota.Jobs()

        @jobs.job("index", chunk=16, timeout=f"{TIMEOUT_S}s", retry=rota.Fixed("1h"))
        async def index(given: list[Doc]) -> None:
            ids = tuple(doc.id for doc in given)
            self.calls.append(ids)
            if docs > 2 and len(ids) == docs:
                raise ValueError("bad")
            go = self.go[ids] = asyncio.Event()
            for _ in range(2):  # the second time for a test that fails
                try:
                    await go.wait()
                    return
                except asyncio.CancelledError:
                    if ids[0] not in deaf:
                        raise

        self.clock = ManualClock()
        self.executor, self.others = lone_executor(jobs, slots=slots, clock=self.clock)
        self.lose = self.executor.stopper.lose
        self.attempts = [
            claimed_job(n, claimed_at=self.clock.now, of=index._declaration) for n in range(docs)
        ]

    async def start(self, *attempts: Attempt) -> None:
        give(self.executor, *(attempts or self.attempts))
        await self.after(0)

    async def after(self, *pauses_s: float) -> None:
        """Let time pass, with a turn of the executor after each of these pauses."""
        for pause_s in pauses_s:
            self.clock.advance(pause_s)
            await self.executor.tick()
            for _ in range(9):  # turns of the loop
                await asyncio.sleep(0)

    async def end(self, *ids: int) -> None:
        self.go[ids].set()
        await self.after(0)

    def assert_free(self) -> None:
        assert self.executor.groups[0].running == 0
        assert not self.executor.stopper.abandoned and not self.others.failures


HANGS = (TIMEOUT_S + 1, 2.0, 2.0)


@rule("M33", "M35")
async def test_a_half_that_hangs_is_given_up_once_with_the_others_that_wait_for_it() -> None:
    calls = Calls(16, slots=2, deaf=(0,))
    await calls.start()
    first, second = tuple(range(8)), tuple(range(8, 16))
    assert calls.calls[1:] == [first]
    await calls.after(*HANGS)
    assert calls.executor.groups[0].running == 0
    assert calls.executor.stopper.abandoned.keys() == set(calls.attempts[:8])
    await calls.end(*first)
    assert second not in calls.calls and all(attempt.is_over for attempt in calls.attempts)
    calls.assert_free()


@rule("M33", "M87")
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_job_that_is_lost_between_two_calls_leaves_the_slot_once(*, hangs: bool) -> None:
    calls = Calls(4, slots=2, deaf=(3,))
    await calls.start()
    calls.lose(calls.attempts[2])
    await calls.after(2.0)
    await calls.end(0, 1)
    assert calls.calls[1:] == [(0, 1), (3,)]
    if hangs:
        await calls.after(*HANGS)
        assert calls.executor.groups[0].running == 0
    await calls.end(3)
    calls.assert_free()


@rule("M33", "M36")
async def test_a_job_that_a_call_which_hangs_did_not_get_ends_with_it() -> None:
    calls = Calls(2, slots=2, deaf=(0,))
    expired = calls.attempts[1]
    expired.job = msgspec.structs.replace(expired.job, expires_at=DUE)
    await calls.start()
    await calls.after(*HANGS)
    assert isinstance(expired.outcome, Expired)
    assert calls.executor.groups[0].running == 0
    await calls.end(0)
    calls.assert_free()


@rule("M35", "M87")
async def test_a_call_has_its_time_to_stop_though_one_of_its_jobs_was_lost_before() -> None:
    calls = Calls(4)
    await calls.start()
    calls.lose(calls.attempts[0])
    await calls.after(2.0, TIMEOUT_S - 1.5, 0)
    assert calls.calls[1:] == [(0, 1), (2, 3)]
    await calls.end(2, 3)
    calls.assert_free()
