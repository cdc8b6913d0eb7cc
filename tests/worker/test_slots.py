"""Slots and the jobs that wait for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.declare.declaration import Declaration
from rota.declare.jobs import Jobs
from rota.worker.attempt import Attempt
from rota.worker.slots import (
    CLAIM_MAX,
    PREFETCH_BYTES,
    PREFETCH_MAX,
    URGENT_LEAST_S,
    URGENT_S,
    SlotGroup,
)
from tests.support.job import DUE, make_job
from tests.support.rules import rule

jobs = Jobs()


@jobs.job("nothing")
def nothing() -> None: ...


def claimed_job(
    id_: int, priority: int = 0, claimed_at: float = 0.0, of: Declaration = nothing._declaration
) -> Attempt:
    payload = f'{{"id":{id_}}}'
    job = make_job(id_, job_type=of.name, payload_json=payload, priority=priority, started_at=DUE)
    return Attempt(job, of, claimed_at, 120.0)


def popped(group: SlotGroup) -> list[int]:
    return [next_id(group) for _ in range(group.waiting)]


def finish(group: SlotGroup, jobs_a_second: int, seconds: range) -> None:
    for second in seconds:
        group.ended += jobs_a_second
        group.measure(float(second))


def next_id(group: SlotGroup) -> int:
    """The job that starts next; 0 when none may."""
    return sum(attempt.job.id for attempt in group.pop(1))


@rule("M61")
@given(st.lists(st.integers(-100, 100), max_size=30))
def test_the_highest_priority_starts_first_and_within_it_the_first_claimed(
    priorities: list[int],
) -> None:
    group = SlotGroup(("default",), 10, 0.0)
    for id_, priority in enumerate(priorities):
        group.push([claimed_job(id_, priority)])
    assert popped(group) == sorted(range(len(priorities)), key=lambda id_: (-priorities[id_], id_))
    assert group.waiting == 0


@rule("M61")
def test_an_urgent_job_that_comes_later_overtakes_what_waits() -> None:
    group = SlotGroup(("default",), 1, 0.0)
    group.push([claimed_job(1)])
    group.push([claimed_job(2)])
    assert next_id(group) == 1
    group.push([claimed_job(3, priority=5)])
    assert popped(group) == [3, 2]


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), max_size=30), st.integers(0, 10))
def test_what_waited_too_long_is_taken_out_and_the_rest_keeps_its_order(
    claimed: list[tuple[int, int]], before: int
) -> None:
    group = SlotGroup(("default",), 3, 0.0)
    for id_, (priority, claimed_at) in enumerate(claimed):
        group.push([claimed_job(id_, priority, claimed_at)])
    stale = {attempt.job.id for attempt in group.take_stale(before)}
    assert stale == {id_ for id_, (_, claimed_at) in enumerate(claimed) if claimed_at < before}
    assert popped(group) == sorted(
        set(range(len(claimed))) - stale, key=lambda id_: (-claimed[id_][0], id_)
    )


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 2000)), max_size=20),
    st.integers(0, 700),
    st.integers(0, 50),
)
def test_a_group_wants_a_job_for_each_free_slot_and_never_more_than_it_may_claim_ahead(
    slots: int, history: list[tuple[int, int]], waiting: int, running: int
) -> None:
    group, now = SlotGroup(("default",), slots, 0.0), 0.0
    for ended, took_ms in history:
        group.ended += ended
        now += took_ms / 1000
        group.measure(now)
    group.running, group.waiting = min(running, slots), waiting
    claimed = group.running + waiting
    assert group.wanted == 0 or claimed + group.wanted <= slots + PREFETCH_MAX
    assert group.wanted >= min(1, slots - claimed)
    assert group.wanted >= 0


def test_a_group_claims_ahead_what_it_finishes_in_a_tenth_of_a_second_and_nothing_when_idle() -> (
    None
):
    group = SlotGroup(("default",), 10, 0.0)
    finish(group, 2_000, range(1, 21))
    assert group.target == pytest.approx(10 + 200, abs=1)
    finish(group, 0, range(21, 41))
    assert group.target == pytest.approx(10, abs=1)


@rule("M81")
def test_a_few_quick_jobs_are_no_reason_to_claim_ahead() -> None:
    group = SlotGroup(("default",), 2, 0.0)
    group.ended += 2
    group.measure(0.005)
    assert group.target == 2
    group.ended += 200
    group.measure(0.01)
    assert group.target > 2


def test_full_slots_want_nothing() -> None:
    group = SlotGroup(("default",), 2, 0.0)
    assert group.wanted == 2
    group.running = 2
    assert group.wanted == 0


@rule("M61")
@given(
    st.integers(1, 30),
    st.integers(0, 10),
    st.lists(st.tuples(st.integers(-2, 2), st.booleans()), max_size=60),
    st.lists(st.integers(0, 59), max_size=60),
)
def test_ordinary_jobs_leave_the_slots_of_the_urgent_free_and_no_other(
    slots: int, urgent_slots: int, jobs: list[tuple[int, bool]], ends: list[int]
) -> None:
    """Jobs wait, some of them let in before others; they get slots, and some end."""
    urgent_slots = min(urgent_slots, slots - 1)
    group = SlotGroup(("default",), slots, 0.0, urgent_slots)
    running: list[Attempt] = []
    waiting = set(range(len(jobs)))
    for id_, (priority, is_first) in enumerate(jobs):
        group.push([claimed_job(id_, priority)], is_first=is_first)
    for end in [0, *ends]:
        startable = group.startable
        started = group.pop(startable)
        assert len(started) == startable, "what is said to be startable starts"
        group.take_slots(started)
        waiting -= {attempt.job.id for attempt in started}
        running += started
        ordinary = sum(attempt.job.priority <= 0 for attempt in running)
        assert ordinary == group.running - group.urgent_running <= slots - urgent_slots
        assert len(running) == group.running <= slots
        urgent_wait = any(jobs[id_][0] > 0 for id_ in waiting)
        assert not urgent_wait or len(running) == slots
        assert len(waiting) == group.waiting
        assert sum(jobs[id_][0] > 0 for id_ in waiting) == group.urgent_waiting
        if not urgent_wait and waiting:
            assert ordinary == slots - urgent_slots or len(running) == slots
        if running:
            group.free_slots([running.pop(end % len(running))])


@rule("M61")
def test_urgent_jobs_are_wanted_while_ordinary_ones_fill_their_slots_and_the_buffer() -> None:
    group = SlotGroup(("default",), 10, 0.0, urgent_slots=2)
    assert (group.wanted, group.wanted_ordinary) == (10, 8)
    for id_ in range(8):
        group.push([claimed_job(id_)])
        group.take_slots(group.pop(1))
    assert (group.wanted, group.wanted_ordinary) == (2, 0)
    for id_ in range(8, 30):
        group.push([claimed_job(id_)])
    assert group.startable == 0
    assert (group.wanted, group.wanted_ordinary) == (2, 0), "an urgent job starts before those"
    group.push([claimed_job(30, priority=1)])
    group.take_slots(group.pop(1))
    group.push([claimed_job(31, priority=1)])
    assert (group.wanted, group.wanted_ordinary) == (0, 0)


@rule("M61")
def test_a_group_is_searched_for_urgent_jobs_alone_after_a_while_or_when_one_ends() -> None:
    group = SlotGroup(("default",), 2, 0.0, urgent_slots=1)
    ordinary, urgent = claimed_job(1), claimed_job(2, priority=1)
    group.take_slots([ordinary])
    group.note_search(10.0, has_more=False)
    assert group.search_at == 10.0 + URGENT_S and not group.needs_claim
    group.hasten_search()
    assert group.search_at == 10.0 + URGENT_LEAST_S
    group.note_search(11.0, has_more=True)
    assert group.search_at <= 11.0 and group.needs_claim
    group.take_slots([urgent])
    group.note_search(12.0, has_more=False)
    assert not group.needs_claim
    group.free_slots([urgent])
    assert group.search_at <= 12.0 and group.needs_claim
    group.note_search(13.0, has_more=False)
    group.free_slots([ordinary])
    assert group.needs_claim and group.wanted_ordinary == 1


@rule("M61")
def test_quick_urgent_jobs_let_no_slow_ordinary_jobs_be_claimed_ahead() -> None:
    group = SlotGroup(("default",), 10, 0.0, urgent_slots=2)
    for second in range(1, 20):
        for id_ in range(500):
            urgent = claimed_job(id_, priority=1)
            group.take_slots([urgent])
            group.free_slots([urgent])
        group.measure(float(second))
    assert group.target == pytest.approx(10 + 50, abs=1)
    assert group.wanted_ordinary == 8


def test_a_group_claims_as_many_jobs_as_its_slots_can_run_up_to_what_it_may_claim_ahead() -> None:
    group = SlotGroup(("default",), 10, 0.0)
    assert group.count_jobs(10) == 10
    group.note_claimed(
        jobs=10, slots=0.1, payload_bytes=90
    )  # all of a type that takes a hundred in one call
    assert (group.count_jobs(3), group.count_jobs(10)) == (300, CLAIM_MAX)
    group.note_claimed(jobs=11, slots=10.01, payload_bytes=90)  # ten of another type are among them
    assert group.count_jobs(10) == 11
    group.note_claimed(jobs=100, slots=1.0, payload_bytes=90)
    group.push([claimed_job(1, claimed_at=1.0)])
    group.take_stale(2.0)
    assert group.count_jobs(10) == 10, "they were claimed too far ahead"


def test_a_group_claims_no_more_ahead_than_sixteen_megabytes_of_payloads() -> None:
    group = SlotGroup(("default",), 10, 0.0)
    group.note_claimed(jobs=100, slots=100, payload_bytes=100 * 64_000)
    finish(group, 50_000, range(1, 20))
    assert group.target == pytest.approx(10 + PREFETCH_BYTES // 64_000, abs=1)
    group.note_claimed(jobs=100, slots=100, payload_bytes=100 * 10)
    finish(group, 50_000, range(20, 40))
    assert group.target == pytest.approx(10 + 5_000, abs=1)


def test_a_group_claims_again_as_soon_as_a_claim_is_missing() -> None:
    group = SlotGroup(("default",), 10, 0.0)
    finish(group, 50_000, range(1, 20))
    group.running, group.waiting = 10, group.target - 10 - CLAIM_MAX + 1
    assert group.wanted_ordinary == 0
    group.waiting -= 1
    assert group.wanted == CLAIM_MAX
    group.coming = 1
    assert group.wanted_ordinary == 0, "what is claimed and not yet here counts"
