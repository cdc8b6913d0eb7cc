"""Rate limits in the database: what is reserved, taken, returned, delayed and estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from rota.errors import UsageError
from rota.store import ops
from rota.store.ops import NoSlot, Reservation, StartRequest
from tests.store.work import Hand
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


class Limits:
    """One session that uses limits."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.hand = Hand(connection)
        self._jobs = 1_000_000

    def declare(self, name: str = "smtp", **changes: Any) -> None:
        """Declare a limit, by default of 100 a minute with a burst of 10."""
        figures = {"name": name, "starts": 100, "per_s": 60, "burst": 10, "keyed": False, **changes}
        self.hand.run(ops.declare_limits(msgspec.json.encode([figures]).decode(), "r1"))

    def reserve(
        self, count: int = 1, *, key: str = "", cost: int = 1, priority: int = 0, **more: Any
    ) -> list[Reservation | NoSlot]:
        """Reserve for jobs that are in no table."""
        first, self._jobs = self._jobs, self._jobs + count
        asked = [
            StartRequest(first + n, ("smtp", key), cost, priority, **more) for n in range(count)
        ]
        return list(self.hand.run(ops.reserve_starts(asked)).values())

    def waits(self, count: int, **more: Any) -> list[float]:
        """The seconds until the slots of those that get one."""
        return [one.wait_s for one in self.reserve(count, **more) if isinstance(one, Reservation)]

    def take(self, count: int = 1, *, key: str | None = None) -> bool:
        return self.hand.run(ops.take_starts("smtp", key, count))

    def freeze(self, at: datetime) -> None:
        """Let it be this time, by the database's clock, until it is set again."""
        self.connection.execute(
            "create or replace function rota.clock() returns timestamptz language sql stable "
            f"as $$select timestamptz '{at.isoformat()}'$$"
        )

    def value(self, query: str, *params: object) -> Any:
        row = self.connection.execute(query.encode(), params or None).fetchone()
        return None if row is None else row[0]


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


@rule("M62")
def test_a_burst_starts_at_once_and_the_next_slots_are_evenly_spaced(limits: Limits) -> None:
    limits.declare()
    waits = limits.waits(20)
    assert waits[:10] == [0] * 10
    spacing = 60 / 91
    assert waits[10:] == pytest.approx([spacing * n for n in range(1, 11)], abs=1e-4)


@rule("M62")
def test_reservations_reach_ten_seconds_ahead(limits: Limits) -> None:
    limits.declare()
    waits = limits.waits(1_000)
    assert len(waits) == 25
    assert 9.3 < max(waits) <= 10


@rule("M61", "M62")
def test_a_job_with_a_priority_reserves_a_little_beyond(limits: Limits) -> None:
    limits.declare()
    limits.waits(1_000)
    [wait_s] = limits.waits(1, priority=50)
    assert 10 < wait_s <= 11


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
    limits.declare(starts=19, burst=10, per_s=10)  # a spacing of a second
    assert limits.waits(1, cost=10) == [0]
    assert limits.waits(1, cost=3) == pytest.approx([3], abs=0.1)
    assert limits.waits(1) == pytest.approx([4], abs=0.1)
    assert limits.reserve(1, cost=11) == [NoSlot(None, "cost")]


@rule("M62")
def test_a_limit_that_is_not_there_lets_nothing_through(limits: Limits) -> None:
    assert limits.reserve(1) == [NoSlot(None, "unknown")]
    with pytest.raises(UsageError, match="there is no rate limit 'smtp'; there are: none"):
        limits.take()


BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
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
