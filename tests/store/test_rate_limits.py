"""Rate limits in the database: what is reserved, taken, returned, delayed and estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from rota.errors import LimitNotFound
from rota.store import ops
from rota.store.ops import NoSlot, Reservation, StartRequest
from tests.store.limits import Limits
from tests.store.work import insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def limits(connection: Connection) -> Limits:
    return Limits(connection)


def most_within(slots: Mapping[datetime, int], per: timedelta) -> int:
    """The highest cost in any window of this length, which its end is not part of."""
    return max(
        (sum(cost for at, cost in slots.items() if start <= at < start + per) for start in slots),
        default=0,
    )


# Slots


@rule("M61", "M62")
def test_a_burst_starts_at_once_and_the_next_evenly_up_to_ten_seconds_ahead(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare()
    waits = limits.waits(1_000)
    assert waits[:10] == [0] * 10
    spacing = 60 / 91
    assert waits[10:] == pytest.approx([spacing * n for n in range(1, 16)], abs=1e-4)
    assert 9.3 < max(waits) <= 10
    [wait_s] = limits.waits(1, priority=50)
    assert 10 < wait_s <= 11, "a job with a priority reserves a little beyond"


@rule("M61", "M62")
def test_within_a_batch_the_highest_priority_gets_the_first_slot(limits: Limits) -> None:
    limits.declare(starts=10, burst=1)
    asked = [StartRequest(n, ("smtp", ""), 1, priority) for n, priority in enumerate([0, 9, 5])]
    answers = limits.hand.run(ops.reserve_starts(asked))
    waits = {job: one.wait_s for job, one in answers.items() if isinstance(one, Reservation)}
    assert waits == {1: 0.0, 2: pytest.approx(6)}


@rule("M62")
def test_keys_have_budgets_of_their_own(limits: Limits) -> None:
    limits.declare(starts=1, burst=1, keyed=True)
    asked = [StartRequest(n, ("smtp", f"key {n % 50}"), 1, 0) for n in range(100)]
    answers = limits.hand.run(ops.reserve_starts(asked))
    given_ = [job for job, one in answers.items() if isinstance(one, Reservation)]
    assert sorted(given_) == list(range(50))


@rule("M62")
def test_a_cost_takes_as_many_slots(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare(starts=19, burst=10, per_s=10)  # a spacing of a second
    assert limits.waits(1, cost=10) == [0]
    assert limits.waits(1, cost=3) == pytest.approx([3])
    assert limits.waits(1) == pytest.approx([4])
    assert limits.reserve(1, cost=11) == [NoSlot(None, "cost")]


@rule("M62")
def test_a_limit_that_is_not_there_lets_nothing_through(limits: Limits) -> None:
    assert limits.reserve(1) == [NoSlot(None, "unknown")]
    with pytest.raises(LimitNotFound, match="no rate limit 'smtp'"):
        limits.take()


_connections: list[Connection] = []


@pytest.fixture(autouse=True)
def _share(connection: Connection) -> None:
    """Hypothesis takes no fixture that each test gets anew."""
    _connections[:] = [connection]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(1, 30), st.integers(1, 3)),
        st.tuples(st.just("take"), st.integers(1, 3), st.just(1)),
        st.tuples(st.just("return"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, 2000), st.just(0)),
    ),
    max_size=40,
)


@rule("M62")
@settings(max_examples=60)
@given(
    figures=st.integers(1, 30).flatmap(
        lambda starts: st.tuples(st.just(starts), st.integers(1, starts))
    ),
    per_s=st.sampled_from([0.1, 0.5, 1, 5, 60]),
    actions=ACTIONS,
)
def test_slots_in_any_window_cost_at_most_the_limit(
    figures: tuple[int, int], per_s: float, actions: list[tuple[str, int, int]]
) -> None:
    """Whatever is reserved, taken and returned in between, and however time passes."""
    starts, burst = figures
    limits = Limits(_connections[0])
    limits.connection.execute("truncate rota.rate_limit, rota.rate_limit_key")
    limits.freeze(now := BEGINNING)
    limits.declare(starts=starts, burst=burst, per_s=per_s)
    slots: Counter[datetime] = Counter()
    ahead: list[tuple[datetime, int, Reservation]] = []
    for verb, count, cost in actions:
        if verb == "pass":
            limits.freeze(now := now + count * timedelta(milliseconds=1))
        elif verb == "take" and count <= burst:
            slots[now] += count * limits.take(count)
        elif verb == "reserve" and cost <= burst:
            for one in limits.reserve(count, cost=cost):
                if isinstance(one, Reservation):
                    at = now + timedelta(seconds=one.wait_s)
                    slots[at] += cost
                    ahead.append((at, cost, one))
        elif verb == "return":
            unused, ahead = ahead[-count:], ahead[:-count]
            returned = limits.hand.run(ops.return_starts([(("smtp", ""), x[2]) for x in unused]))
            unused.sort(key=lambda one: one[2].to_at)
            for at, own, _ in unused[len(unused) - returned :]:
                slots[at] -= own
    assert most_within(slots, timedelta(seconds=per_s)) <= starts
    assert most_within(slots, timedelta(seconds=per_s) + _late(limits, starts, per_s, burst)) <= (
        starts + burst
    ), "of starts, each as late as it may be"


def _late(limits: Limits, starts: int, per_s: float, burst: int) -> timedelta:
    """How much later than its slot a job may start."""
    late_us = "select late from rota.limit_pace(%s, %s * interval '1 s', %s)"
    return timedelta(microseconds=limits.value(late_us, starts, per_s, burst))


# At once


@rule("M62")
def test_take_shares_the_budget_of_jobs_and_never_waits(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare()
    assert [limits.take(count) for count in (3, 6, 2, 1, 1)] == [True, True, False, True, False]
    assert limits.waits(1) == pytest.approx([60 / 91], abs=1e-4)


@rule("M62")
def test_two_connections_never_take_the_same_slot(limits: Limits, database: str) -> None:
    limits.declare(starts=50, burst=50, per_s=3_600)

    def take(_: int) -> int:
        with psycopg.connect(database, autocommit=True) as own:
            session = Limits(own)
            return sum(session.take() for _ in range(20)) + len(session.waits(10, most_s=0.0))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(4))) == 50


@rule("M62")
def test_a_transaction_that_keeps_a_key_locked_delays_nobody_else_for_long(
    limits: Limits, database: str
) -> None:
    limits.declare()
    with psycopg.connect(database) as other:
        other.execute("select rota.limit_take('smtp')")
        assert limits.reserve(1) == [NoSlot(None, "locked")]
    assert limits.waits(1) == [0]
    with psycopg.connect(database) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED only"):
            other.execute("select rota.limit_take('smtp')")


# Returned, delayed, estimated


@rule("M62")
def test_only_the_last_reservations_of_a_key_are_returned(limits: Limits) -> None:
    limits.declare()
    given_ = [one for one in limits.reserve(20) if isinstance(one, Reservation)]
    middle, last = given_[10:12], given_[17:]
    give_back = [(("smtp", ""), one) for one in middle + last]
    assert limits.hand.run(ops.return_starts(give_back)) == 3
    again = [one for one in limits.reserve(4) if isinstance(one, Reservation)]
    assert [one.to_at for one in again[:3]] == [one.to_at for one in last]
    assert again[3].to_at > last[-1].to_at


@rule("M62")
def test_a_delay_gives_no_slot_before_and_no_burst_after(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare()
    [before] = [one for one in limits.reserve(1) if isinstance(one, Reservation)]
    limits.hand.run(ops.delay_limit(("smtp", ""), 5.0))
    [after, *_] = slots = [one for one in limits.reserve(3) if isinstance(one, Reservation)]
    assert before.stamp != after.stamp
    assert [one.wait_s for one in slots] == pytest.approx([5 + n * 60 / 91 for n in range(3)])
    stamps = limits.hand.run(ops.read_stamps([("smtp", ""), ("none", "")]))
    assert stamps == {("smtp", ""): after.stamp, ("none", ""): None}
    limits.hand.run(ops.delay_limit(("smtp", ""), 1.0))
    assert limits.waits(1)[0] > 6  # a shorter one takes nothing back


@rule("M62")
def test_a_delay_outlasts_reservations_that_are_returned_after_it(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare()
    given_ = [one for one in limits.reserve(20) if isinstance(one, Reservation)]
    limits.hand.run(ops.delay_limit(("smtp", ""), 5.0))
    limits.hand.run(ops.return_starts([(("smtp", ""), one) for one in given_]))
    assert limits.waits(1)[0] >= 5


@rule("M62")
def test_jobs_that_are_handed_back_come_again_at_the_pace_of_the_limit(limits: Limits) -> None:
    limits.freeze(BEGINNING)
    limits.declare()
    backs = [
        one.back_s
        for _ in range(4)
        for one in limits.reserve(500)
        if isinstance(one, NoSlot) and one.back_s is not None
    ]
    assert len(backs) == 2_000 - 25
    spacing = 60 / 91
    assert backs[0] == pytest.approx(10 - 5, abs=1)
    assert backs[-1] == pytest.approx(spacing * 2_000, rel=0.01)
    steps = [later - earlier for earlier, later in pairwise(backs)]
    assert max(steps) < spacing + 0.5 and sorted(backs) == pytest.approx(backs, abs=1)


@rule("M62")
def test_an_estimate_is_an_instant_that_a_job_can_have(limits: Limits) -> None:
    limits.declare(starts=1, burst=1, per_s=366 * 86_400)
    backs = [one.back_s for one in limits.reserve(200) if isinstance(one, NoSlot)]
    century_s = 36_525 * 86_400.0
    assert century_s - 60 < max(one for one in backs if one is not None) <= century_s


@rule("M62")
def test_a_new_job_does_not_overtake_those_that_were_handed_back(limits: Limits) -> None:
    limits.declare()
    limits.freeze(BEGINNING)
    limits.reserve(100)
    limits.freeze(BEGINNING + timedelta(seconds=5))
    [new] = limits.reserve(1)
    assert isinstance(new, NoSlot) and new.back_s is not None and new.back_s > 50
    [job] = insert(limits.connection, waits_for="limit smtp")
    [again] = limits.hand.run(ops.reserve_starts([StartRequest(job, ("smtp", ""), 1, 0)])).values()
    assert isinstance(again, Reservation)


@rule("M61", "M62")
def test_an_urgent_job_that_is_handed_back_comes_before_the_ordinary_ones(limits: Limits) -> None:
    limits.declare(starts=10, burst=1)  # a slot every 6 s
    limits.freeze(BEGINNING)
    limits.reserve(100)
    [back] = limits.reserve(1, priority=1)
    assert back == NoSlot(1.5)  # its slot is at 12 s, and 10.5 s before it can be reserved
    limits.freeze(BEGINNING + timedelta(seconds=1.5))
    assert limits.waits(1) == []
    assert limits.waits(1, priority=1) == [10.5]


@rule("M62")
def test_a_worker_without_room_gets_free_slots_only(limits: Limits) -> None:
    limits.declare()
    first, *others = limits.reserve(12, most_s=0.0)
    assert isinstance(first, Reservation)
    full = [one for one in others if isinstance(one, NoSlot)]
    assert [one.back_s for one in full] == pytest.approx([60 / 91, 120 / 91], abs=0.01)


# Bounds


@rule("M62")
def test_a_batch_writes_each_key_once_and_reads_it_once_under_an_old_snapshot(
    limits: Limits, database: str
) -> None:
    limits.declare(starts=1_000_000)
    with psycopg.connect(database) as old:
        old.execute("begin isolation level repeatable read")
        old.execute("select from rota.rate_limit_key")
        for _ in range(100):
            limits.reserve(10)
        assert limits.value("select version from rota.rate_limit_key") == 100
        plan = limits.value(
            "explain (analyze, buffers, format json) select * from rota.rate_limit_key k "
            "where k.name = 'smtp' and k.key = '' "
            "order by k.name desc, k.key desc, k.version desc limit 1"
        )[0]["Plan"]
    assert plan["Plans"][0]["Scan Direction"] == "Backward"
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 6
    assert limits.value("select count(*) from rota.rate_limit_key") == 1


@rule("M13")
def test_keys_that_were_not_used_for_a_day_are_forgotten(limits: Limits) -> None:
    limits.declare(keyed=True)
    limits.freeze(BEGINNING)
    limits.reserve(1, key="old")
    limits.freeze(BEGINNING + timedelta(hours=25))
    limits.reserve(1, key="new")
    assert limits.hand.run(ops.forget_rows("limits", 100)) == 1
    assert limits.value("select key from rota.rate_limit_key") == "new"


@rule("M62")
@given(
    figures=st.integers(1, 1_000_000).flatmap(
        lambda starts: st.tuples(st.just(starts), st.integers(1, starts))
    ),
    per_ms=st.integers(100, 366 * 86_400_000),
)
def test_the_pace_leaves_room_for_late_starts(figures: tuple[int, int], per_ms: int) -> None:
    """Starts in a window come from slots in one that is longer by the time that they may be late:
    at most limit + burst."""
    starts, burst = figures
    row = _connections[0].execute(
        "select spacing, late from rota.limit_pace(%s, %s * interval '1 ms', %s)",
        [starts, per_ms, burst],
    )
    [(spacing, late)] = row.fetchall()
    per = per_ms * 1_000
    assert spacing * (starts - burst + 1) >= per
    assert per + late <= spacing * (starts + 1)
    assert late >= min(per // 10, 250_000)
