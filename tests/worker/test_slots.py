"""Slots and the jobs that wait for one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.declare.jobs import Jobs
from rota.model.job import Job
from rota.worker.attempt import Attempt
from rota.worker.slots import PREFETCH_MAX, SlotGroup
from tests.support.rules import rule

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
jobs = Jobs()


@jobs.job("nothing")
def nothing() -> None: ...


def claimed_job(id_: int, priority: int = 0, claimed_at: float = 0.0) -> Attempt:
    job = Job(
        id=id_, origin_id=id_, queue="default", job_type="nothing", payload_json="{}",
        payload_version=None, priority=priority, run_at=LONG_AGO,
        expires_at=None, attempts=1, max_attempts=None, claims=1, idempotency_key=None,
        meta_json=None, created_at=LONG_AGO,
    )  # fmt: skip
    return Attempt(job, nothing, claimed_at, 120.0)


def popped(group: SlotGroup) -> list[int]:
    return [next_id(group) for _ in range(group.waiting)]


def next_id(group: SlotGroup) -> int:
    """The job that starts next; 0 when none may."""
    return sum(attempt.job.id for attempt in group.pop(1, now=0.0))


@rule("M61")
@given(st.lists(st.integers(-100, 100), max_size=30))
def test_the_highest_priority_starts_first_and_within_it_the_first_claimed(
    priorities: list[int],
) -> None:
    group = SlotGroup(("default",), 10, 0.0)
    for id_, priority in enumerate(priorities):
        group.push(claimed_job(id_, priority))
    assert popped(group) == sorted(range(len(priorities)), key=lambda id_: (-priorities[id_], id_))
    assert group.waiting == 0


@rule("M61")
def test_an_urgent_job_that_comes_later_overtakes_what_waits() -> None:
    group = SlotGroup(("default",), 1, 0.0)
    group.push(claimed_job(1))
    group.push(claimed_job(2))
    assert next_id(group) == 1
    group.push(claimed_job(3, priority=5))
    assert popped(group) == [3, 2]


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), max_size=30), st.integers(0, 10))
def test_what_waited_too_long_is_taken_out_and_the_rest_keeps_its_order(
    claimed: list[tuple[int, int]], before: int
) -> None:
    group = SlotGroup(("default",), 3, 0.0)
    for id_, (priority, claimed_at) in enumerate(claimed):
        group.push(claimed_job(id_, priority, claimed_at))
    stale = {one.job.id for one in group.take_stale(before)}
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
    group, now = SlotGroup(("default",), 10, 0.0), 0.0
    for _ in range(20):
        group.ended += 2000
        now += 1.0
        group.measure(now)
    assert group.target == pytest.approx(10 + 200, abs=1)
    for _ in range(20):
        now += 1.0
        group.measure(now)
    assert group.target == pytest.approx(10, abs=1)


def test_full_slots_want_nothing() -> None:
    group = SlotGroup(("default",), 2, 0.0)
    assert group.wanted == 2
    group.running = 2
    assert group.wanted == 0


@rule("M33")
def test_a_suspect_is_asked_for_again_when_the_one_that_had_to_wait_went_back() -> None:
    group = SlotGroup(("default",), 2, 0.0)
    first, second = claimed_job(1), claimed_job(2, claimed_at=1.0)
    first.is_suspect = second.is_suspect = True
    group.push(first)
    assert group.pop(2, 0.0) == [first]
    group.put_aside([first], until=60.0)
    group.push(second)
    assert group.pop(2, 1.0) == []
    assert group.take_stale(1.0) == [first]
    assert group.pop(2, 1.0) == [second]
