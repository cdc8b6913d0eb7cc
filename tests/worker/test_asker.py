"""The asker wakes the parts of upkeep that have something to do."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.store.ops import UpkeepDue, WaitSweep
from rota.upkeep.asker import LATE_S, REST_MAX_S, Asker
from rota.upkeep.read_window import BEGINNING, MARGIN, ReadWindow
from rota.upkeep.reaper import STEADY_S, Reaper
from rota.upkeep.scheduler import Scheduler
from rota.upkeep.server_clock import SURE_S, ServerClock
from rota.upkeep.waits import WaitSweeper
from tests.support.clock import ManualClock
from tests.support.rules import rule

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Alone:
    """An asker of two sweepers that asks no database: it gets these answers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        link = StoreLink(Database(""), "test")
        self.reaper = Reaper(Bus(), link, self.clock)
        self.scheduler = Scheduler(Bus(), link, self.clock)
        self.woken: list[str] = []
        for sweeper in (self.reaper, self.scheduler):
            note = partial(self.woken.append, sweeper.name)
            sweeper.wake = note  # type: ignore[method-assign]
        self.asked = 0
        self.answer: UpkeepDue | None = UpkeepDue(NOON, [], 0.0)
        stands: Any = self
        both = [self.reaper, self.scheduler]
        self.asker = Asker(Bus(), stands, self.clock, self.reaper, self.scheduler, both)

    async def run(self, _: object) -> UpkeepDue | None:
        """Of the link: an operation."""
        self.asked += 1
        return self.answer

    async def turn_after(self, seconds: float) -> int:
        """Let time pass, then let it turn; how often it has asked by then."""
        self.clock.advance(seconds)
        await self.asker.tick()
        return self.asked


@rule("M3")
async def test_it_asks_itself_only_what_no_claim_has_asked_in_time() -> None:
    alone = Alone()
    late_s = Scheduler.asked_every_s + LATE_S
    for _ in range(5):  # claims ask each time
        alone.asker.take(alone.asker.make_question(alone.clock.monotonic()), alone.answer)
        assert await alone.turn_after(late_s - 0.125) == 0
    alone.asker.take(alone.asker.make_question(alone.clock.monotonic()), alone.answer)
    assert await alone.turn_after(late_s - 0.125) == 0
    assert await alone.turn_after(0.125) == 1, "no claim did"


@rule("M33")
def test_with_nobody_else_who_asks_a_lost_lease_is_noticed_within_five_seconds() -> None:
    # Each question comes as late as it may.
    assert Reaper.asked_every_s + LATE_S < 5


@rule("M3")
async def test_while_another_worker_asks_it_does_not() -> None:
    alone = Alone()
    for _ in range(10):
        alone.asker.rest(1.0)
        assert await alone.turn_after(0.9) == 0
        assert alone.asker.due_at > alone.clock.monotonic()
        assert alone.reaper.find_pause_s(1.0) is None, "nor do sweepers turn by themselves"
    assert await alone.turn_after(0.1 + LATE_S) == 1, "the other one is gone"
    assert alone.reaper.find_pause_s(1.0) == 1.0


@rule("M33")
async def test_once_a_minute_it_asks_whoever_else_does() -> None:
    alone = Alone()
    for _ in range(int(REST_MAX_S)):
        alone.asker.rest(2.0)
        alone.clock.advance(1.0)
    assert alone.asker.due_at <= alone.clock.monotonic()


@rule("M33")
async def test_others_may_rely_on_it_unless_a_sweeper_does_not_do_what_is_due() -> None:
    alone = Alone()
    assert alone.asker.is_well
    alone.answer = UpkeepDue(NOON, ["reaper"], 0.0)
    await alone.turn_after(60)
    assert not alone.asker.is_well, "the reaper may hang"
    alone.reaper.note_answer()
    assert alone.asker.is_well
    alone.reaper.note_outage(DatabaseUnavailable("gone"))
    alone.reaper.note_back()
    assert not alone.asker.is_well, "it gives others time to renew"
    alone.clock.advance(STEADY_S + 1)
    assert alone.asker.is_well


@rule("M33")
def test_who_looks_for_others_asks_though_another_said_the_same() -> None:
    alone = Alone()
    alone.asker.rest(30.0)
    alone.clock.advance(Reaper.asked_every_s)
    now = alone.clock.monotonic()
    assert alone.asker.find_question(now, for_others=False) is None
    question = alone.asker.find_question(now, for_others=True)
    assert question is not None and alone.reaper in question.sweepers


@rule("M14", "M33")
async def test_who_has_something_to_do_is_woken_and_the_others_read_on_from_here() -> None:
    alone = Alone()
    alone.answer = UpkeepDue(NOON, ["scheduler"], 0.0)
    await alone.turn_after(60)
    assert alone.woken == ["scheduler"]
    assert alone.reaper.reading.begin() == NOON - MARGIN
    assert alone.scheduler.reading.begin() < NOON - MARGIN


@rule("M31")
async def test_what_was_not_answered_is_asked_again() -> None:
    alone = Alone()
    alone.answer = None  # a table was locked
    assert await alone.turn_after(60) == 1
    assert await alone.turn_after(2 * LATE_S) == 2


@rule("M33")
@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_question_that_was_lost_gives_other_workers_time_once_the_database_answers(
    is_refused: bool,
) -> None:
    alone = Alone()
    alone.asker.handle_outage(DatabaseUnavailable("gone", refused=is_refused), 1.0)
    alone.clock.advance(30)
    assert alone.reaper._find_steady_s(alone.clock.monotonic()) == (None if is_refused else 0)
    await alone.turn_after(30)
    alone.clock.advance(7)
    assert alone.reaper._find_steady_s(alone.clock.monotonic()) == (None if is_refused else 7)


@rule("M33")
@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
async def test_a_step_of_the_servers_clock_is_told_to_the_reaper_and_all_read_anew(
    step_s: float,
) -> None:
    alone = Alone()
    for time, moved_s, noticed in (
        (500.0, 7.0, None),
        (560.0, 7.0, None),
        (620.0 + step_s, 7.0, (step_s, 7.0)),
        (680.0 + step_s, 7.0 + step_s, None),  # its pass has moved the leases
        (740.0 + 2 * step_s, 7.0 + step_s, (step_s, 7.0 + step_s)),  # once more, as far
        (800.0 + 2 * step_s, 7.0 + step_s, (step_s, 7.0 + step_s)),  # the pass has failed
        (860.0 + 2 * step_s, 7.0 + 2 * step_s, None),  # another worker's pass has not
    ):
        alone.reaper._step = None
        alone.answer = UpkeepDue(NOON, [], time, moved_s)
        await alone.turn_after(60)
        assert alone.reaper._step == (noticed and pytest.approx(noticed))
        assert noticed is None or alone.scheduler.reading.begin() == BEGINNING


@rule("M33")
def test_the_first_claim_of_a_worker_asks_what_time_it_is() -> None:
    alone = Alone()
    assert alone.asker.find_question(alone.clock.monotonic(), for_others=False) is not None


@rule("M11", "M33")
async def test_a_server_that_stood_still_puts_no_pass_off_for_long() -> None:
    clock = ManualClock()

    class Slow:
        async def run(self, _: object) -> WaitSweep:
            clock.advance(30.0)
            return WaitSweep(None, 1, 0, is_busy=False)

    slow: Any = Slow()
    assert (await WaitSweeper(Bus(), slow, clock).tick() or 0.0) <= 10.0
    reading = ReadWindow(clock)
    reading.begin()
    reading.end(NOON, 30.0)
    assert reading.everything_at - clock.monotonic() <= 300.0


@rule("M33")
def test_an_answer_that_took_long_shows_no_step_and_sets_no_clock() -> None:
    clock = ServerClock()
    assert clock.note(100.0, 0.0, 0.0, SURE_S) is None
    assert clock.note(139.0, 0.0, 10.0, 40.0) is None  # when within these seconds?
    assert clock.note(121.0, 0.0, 20.0, 20.1) is None
    assert clock.note(134.0, 0.0, 30.0, 30.1) == 3.0
    assert clock.note(144.0, 3.0, 40.0, 40.1) is None
    assert clock.note(151.0, 3.0, 50.0, 50.1) == -3.0
    assert clock.note(161.0, 0.0, 60.0, 60.1) is None


@rule("M33")
def test_workers_of_which_one_stood_still_agree_after_one_move() -> None:
    stopped, other = ServerClock(), ServerClock()
    moved_s = 0.0
    for turn in range(20):
        now = 10.0 * turn
        for clock, own in ((stopped, now - (6.0 if turn >= 10 else 0.0)), (other, now)):
            moved_s += clock.note(100.0 + now, moved_s, own, own + 0.1) or 0.0
    assert moved_s == 6.0
