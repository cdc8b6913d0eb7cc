"""What the executor starts of the jobs that it was given, and what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

import rota
from rota.errors import AttemptTimeout, DatabaseUnavailable
from rota.model.outcome import End, Errored, HandedBack, Succeeded
from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store.db import Database
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.executor import STOP_NOW_S, Executor
from rota.worker.finisher import Finisher
from rota.worker.starter import Starter
from rota.worker.suspects import Suspects
from tests.store.work import Hand, insert
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.worker.alone import Others, give, lone_executor
from tests.worker.hand import make_spec
from tests.worker.table import Connection
from tests.worker.test_slots import claimed_job

LEASE_S = 100.0
BUFFER_S = 60.0


class RecordedByHand(Starter):
    """Lets attempts wait in their slots until the test says that their starts are recorded."""

    def __init__(self, clock: Clock, executor: Executor) -> None:
        link = StoreLink(Database(""), "start")
        super().__init__(Bus(), clock, link, executor.begin, executor.handle_end)
        self.asked: list[Attempt] = []
        self.recorded: set[Attempt] = set()

    async def record_starts(self, asked: Sequence[Attempt]) -> dict[Attempt, float | End]:
        self.asked += [attempt for attempt in asked if attempt not in self.asked]
        return {attempt: float("inf") for attempt in asked if attempt not in self.recorded}


class Work:
    """An executor, its handler, and two claimed jobs, which may have been lost before. The handler
    runs until `go` is set."""

    def __init__(
        self,
        connection: Connection,
        *,
        slots: int = 1,
        losses: int | None = None,
        threads: bool = False,
    ) -> None:
        self.ran: list[int] = []
        self.go = asyncio.Event()
        self.clock = ManualClock()
        loop = asyncio.get_running_loop()
        jobs = rota.Jobs()

        @jobs.job("async", takes_context=True)
        async def waits(ctx: rota.Context) -> None:
            self.ran.append(ctx.job.id)
            await self.go.wait()

        @jobs.job("plain", takes_context=True)
        def blocks(ctx: rota.Context) -> None:
            self.ran.append(ctx.job.id)
            asyncio.run_coroutine_threadsafe(self.go.wait(), loop).result(30)

        self.executor, others = lone_executor(slots=slots, clock=self.clock, buffer_s=BUFFER_S)
        self.record = self.executor.starter = RecordedByHand(self.clock, self.executor)
        self.ended = others.ended
        insert(connection, 2, losses=losses, error_type=None if losses is None else "LeaseExpired")
        handler = blocks if threads else waits
        claimed = Hand(connection).claim()
        self.first, self.second = (
            Attempt(
                job,
                handler._declaration,
                self.clock.now,
                LEASE_S,
                job.id in claimed.suspects,
                job.id in claimed.unrecorded,
            )
            for job in claimed.jobs
        )

    async def start(self, *attempts: Attempt) -> None:
        """Give these to the executor, and ask for them."""
        give(self.executor, *attempts)
        await self.ask()

    async def ask(self) -> None:
        """Let those begin that may by now."""
        await self.executor.tick()
        while await self.record.tick() == 0:
            pass

    async def go_on(self, attempt: Attempt) -> None:
        """Let an attempt begin that waits for its record."""
        self.record.recorded.add(attempt)
        self.record.hasten(attempt)
        await self.ask()

    async def end(self) -> Attempt:
        """The next job that ended."""
        return await asyncio.wait_for(self.ended.get(), 30)


@rule("M31")
async def test_a_job_starts_only_while_a_quarter_of_its_lease_is_left(
    connection: Connection,
) -> None:
    work = Work(connection)
    work.first.claimed_at -= 0.76 * LEASE_S
    work.second.claimed_at -= 0.5 * LEASE_S
    work.go.set()
    give(work.executor, work.first, work.second)
    ends = {end.job.id: end.outcome for end in (await work.end(), await work.end())}
    assert isinstance(ends[work.first.job.id], HandedBack) and isinstance(
        ends[work.second.job.id], Succeeded
    )
    assert work.ran == [work.second.job.id]


@rule("M31", "M32")
@pytest.mark.parametrize("threads", [False, True], ids=["async", "plain"])
async def test_a_job_whose_lease_was_lost_in_the_buffer_never_starts(
    connection: Connection, threads: bool
) -> None:
    work = Work(connection, threads=threads)
    give(work.executor, work.first, work.second)
    work.executor.stopper.lose(work.second)
    work.go.set()
    assert {(await work.end()).job.id, (await work.end()).job.id} == {
        work.first.job.id,
        work.second.job.id,
    }
    assert work.ran == [work.first.job.id]
    assert isinstance(work.second.outcome, HandedBack)


@rule("M61")
async def test_a_job_that_waited_too_long_for_a_slot_goes_back_for_another_worker(
    connection: Connection,
) -> None:
    work = Work(connection)
    give(work.executor, work.first, work.second)
    await work.executor.tick()
    assert work.ended.empty()
    work.clock.advance(BUFFER_S + 1)
    await work.executor.tick()
    assert await work.end() is work.second and isinstance(work.second.outcome, HandedBack)
    work.go.set()
    assert await work.end() is work.first, "what runs is none of the buffer's"
    assert work.ran == [work.first.job.id]


@rule("M83")
async def test_a_worker_going_down_gives_back_what_it_has_not_started_before_what_runs_has_ended(
    connection: Connection,
) -> None:
    work = Work(connection)
    give(work.executor, work.first, work.second)
    going_down = asyncio.create_task(work.executor.finish_running(30, asyncio.Event()))
    assert await work.end() is work.second and isinstance(work.second.outcome, HandedBack)
    assert not going_down.done()
    work.go.set()
    assert await work.end() is work.first and isinstance(work.first.outcome, Succeeded)
    await asyncio.wait_for(going_down, 30)
    assert work.ran == [work.first.job.id]


@rule("M35", "M83")
async def test_an_attempt_past_its_timeout_is_charged_also_by_a_worker_that_goes_before_it_ends(
    connection: Connection,
) -> None:
    work, jobs, begun = Work(connection), rota.Jobs(), asyncio.Event()

    @jobs.job("stubborn")
    async def goes_on() -> None:
        begun.set()
        while not work.go.is_set():
            with suppress(asyncio.CancelledError):
                await work.go.wait()

    attempt = Attempt(work.first.job, goes_on._declaration, work.clock.now, LEASE_S)
    give(work.executor, attempt)
    await begun.wait()
    work.clock.advance(goes_on._declaration.options.timeout_s + 0.01)
    await work.executor.tick()
    stop_now = asyncio.Event()
    stop_now.set()
    going_down = asyncio.create_task(work.executor.finish_running(0, stop_now))
    await work.clock.until_waited_for(STOP_NOW_S)
    work.clock.advance(STOP_NOW_S)
    await asyncio.wait_for(going_down, 30)
    work.go.set()
    end = (await work.end()).outcome
    assert isinstance(end, Errored) and isinstance(end.error, AttemptTimeout)


@rule("M33")
async def test_a_job_that_was_lost_begins_when_its_start_is_recorded_and_the_next_when_that_is_over(
    connection: Connection,
) -> None:
    # A job that was lost this often delays the next one by a minute.
    work = Work(connection, slots=2, losses=4)
    work.go.set()
    await work.start(work.first, work.second)
    assert (work.record.asked, work.ran) == ([work.first], [])
    await work.go_on(work.first)
    assert await work.end() is work.first
    work.clock.advance(1.0)
    await work.ask()
    assert (work.record.asked, work.ran) == ([work.first], [work.first.job.id]), (
        "what it came to is not written yet"
    )
    work.executor.note_written(work.first)
    await work.ask()
    assert work.record.asked == [work.first, work.second]


@rule("M33", "M83")
async def test_a_suspect_that_begins_when_another_is_over_is_waited_for_at_the_end(
    connection: Connection,
) -> None:
    work = Work(connection, slots=2, losses=2)
    await work.start(work.first, work.second)
    await work.go_on(work.first)
    work.go.set()
    assert await work.end() is work.first
    work.go.clear()
    work.executor.note_written(work.first)
    await work.ask()
    await work.go_on(work.second)
    going_down = asyncio.create_task(work.executor.finish_running(30, asyncio.Event()))
    for _ in range(100):  # turns of the loop, not time: what is not waited for is told at once
        await asyncio.sleep(0)
    assert work.second.stop_outcome is None, "the grace period is not over"
    work.go.set()
    await asyncio.wait_for(going_down, 30)
    assert await work.end() is work.second and isinstance(work.second.outcome, Succeeded)


@rule("M33", "M35")
async def test_the_slot_of_a_job_that_ended_before_its_start_was_recorded_is_free_again(
    connection: Connection,
) -> None:
    work = Work(connection, losses=2)
    await work.start(work.first)
    work.executor.stopper.lose(work.first)
    await work.executor.tick()
    assert await work.end() is work.first
    [group] = work.executor.groups
    assert group.running == 1
    work.record.hasten(work.first)
    await work.ask()
    await work.executor.tick()
    assert group.running == 0


@rule("M33")
async def test_a_suspect_that_waits_for_too_long_goes_back_for_another_worker(
    connection: Connection,
) -> None:
    work = Work(connection, slots=2, losses=4)
    await work.start(work.first, work.second)
    work.clock.advance(BUFFER_S)
    work.first.renewed_after_at = work.second.renewed_after_at = work.clock.now
    await work.ask()
    assert await work.end() is work.second and isinstance(work.second.outcome, HandedBack)
    assert work.second.outcome.delay_s is not None


@rule("M33")
async def test_a_suspect_whose_answer_was_lost_and_that_was_claimed_again_holds_no_other(
    free_port: int,
) -> None:
    suspects, attempts = Suspects(SYSTEM_CLOCK, 60.0), dict[int, Attempt]()
    first, again = claimed_job(1), claimed_job(1)

    class Away(StoreLink):
        async def run(self, operation: Operation[Any], *, atomic: bool = False) -> Any:
            attempts[1] = again  # this worker claims the job while it waits for an answer
            return await super().run(operation, atomic=atomic)

    database = Database(f"postgresql://127.0.0.1:{free_port}/none")
    stands: Any = Others()
    finisher = Finisher(
        make_spec(rota.Jobs()), Bus(), SYSTEM_CLOCK, attempts, Away(database, "finish"), stands
    )
    finisher.note_written = suspects.note_written
    first.is_suspect = again.is_suspect = True
    attempts[1] = first
    assert suspects.ask([first]) == {}
    assert again in suspects.ask([again])
    Attempt.admit([first])
    first.end(HandedBack("no thread could be started"), SYSTEM_CLOCK.monotonic())
    finisher.take([first])
    with pytest.raises(DatabaseUnavailable):
        await finisher.tick()
    assert attempts == {1: again}
    assert suspects.ask([again]) == {}
