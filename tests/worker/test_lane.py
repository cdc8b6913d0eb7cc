"""Slots and the jobs that wait for one."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.declare.jobs import Jobs
from rota.model.job import Job
from rota.worker.held import Held
from rota.worker.lane import PREFETCH_MAX, Lane
from tests.support.rules import rule

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
jobs = Jobs()


@jobs.job("nothing")
def nothing() -> None: ...


def held(id_: int, priority: int = 0, claimed_at: float = 0.0) -> Held:
    job = Job(
        id=id_, origin_id=id_, queue="default", job_type="nothing", payload_json="{}", payload_version=None, priority=priority, run_at=LONG_AGO,
        expires_at=None, attempts=1, max_attempts=None, claims=1, idempotency_key=None, meta_json=None, created_at=LONG_AGO,
    )  # fmt: skip
    return Held(job, nothing, claimed_at, 120.0)


def popped(lane: Lane) -> list[int]:
    return [next_id(lane) for _ in range(lane.waiting)]


def next_id(lane: Lane, *, let_begin: bool = True) -> int:
    """The job that starts next; 0 when none may."""
    one = lane.pop(lambda _: let_begin)
    return 0 if one is None else one.job.id


@rule("M61")
@given(st.lists(st.integers(-100, 100), max_size=30))
def test_the_highest_priority_starts_first_and_within_it_the_first_claimed(
    priorities: list[int],
) -> None:
    lane = Lane(("default",), 10)
    for id_, priority in enumerate(priorities):
        lane.push(held(id_, priority))
    assert popped(lane) == sorted(range(len(priorities)), key=lambda id_: (-priorities[id_], id_))
    assert lane.waiting == 0


@rule("M61")
def test_an_urgent_job_that_comes_later_overtakes_what_waits() -> None:
    lane = Lane(("default",), 1)
    lane.push(held(1))
    lane.push(held(2))
    assert next_id(lane) == 1
    lane.push(held(3, priority=5))
    assert popped(lane) == [3, 2]


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), max_size=30), st.integers(0, 10))
def test_what_waited_too_long_is_taken_out_and_the_rest_keeps_its_order(
    claimed: list[tuple[int, int]], before: int
) -> None:
    lane = Lane(("default",), 3)
    for id_, (priority, claimed_at) in enumerate(claimed):
        lane.push(held(id_, priority, claimed_at))
    stale = {one.job.id for one in lane.take_stale(before)}
    assert stale == {id_ for id_, (_, claimed_at) in enumerate(claimed) if claimed_at < before}
    assert popped(lane) == sorted(
        set(range(len(claimed))) - stale, key=lambda id_: (-claimed[id_][0], id_)
    )


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 2000)), max_size=20),
    st.integers(0, 700),
    st.integers(0, 50),
)
def test_a_lane_wants_a_job_for_each_free_slot_and_never_more_than_it_may_claim_ahead(
    slots: int, history: list[tuple[int, int]], waiting: int, running: int
) -> None:
    lane, now = Lane(("default",), slots), monotonic()
    for ended, took_ms in history:
        lane.ended += ended
        now += took_ms / 1000
        lane.measure(now)
    lane.running, lane.waiting = min(running, slots), waiting
    claimed = lane.running + waiting
    assert lane.wanted == 0 or claimed + lane.wanted <= slots + PREFETCH_MAX
    assert lane.wanted >= min(1, slots - claimed)
    assert lane.wanted >= 0


def test_a_lane_claims_ahead_what_it_goes_through_in_a_tenth_of_a_second_and_nothing_when_it_stands_still() -> (
    None
):
    lane, now = Lane(("default",), 10), monotonic()
    for _ in range(20):
        lane.ended += 2000
        now += 1.0
        lane.measure(now)
    assert lane.target == pytest.approx(10 + 200, abs=1)
    for _ in range(20):
        now += 1.0
        lane.measure(now)
    assert lane.target == pytest.approx(10, abs=1)


def test_full_slots_want_nothing() -> None:
    lane = Lane(("default",), 2)
    assert lane.wanted == 2
    lane.running = 2
    assert lane.wanted == 0
