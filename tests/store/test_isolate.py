"""The bisection of a refused batch, fed with answers and errors: no database decides here."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.store.driver import Operation, Query, Row
from rota.store.errors import RowLocked, RowRefused, ServerTrouble, StoreError
from rota.store.isolate import Isolated, Split, isolate
from tests.support.rules import rule

ITEMS = list(range(64))
PAST, FUTURE = float("-inf"), float("inf")
Outcome = Isolated[int, Sequence[int]]
some_items = st.sets(st.sampled_from(ITEMS))


class Server:
    """Answers a statement, or refuses it for the items that it has an error for."""

    def __init__(self, errors: dict[int, StoreError], *, most: int | None = None) -> None:
        self.errors = errors
        self.most = most
        """A statement of more items takes too long."""
        self.asked: list[Sequence[int]] = []

    def run(self, operation: Operation[Outcome]) -> Outcome:
        try:
            query = next(operation)
            while True:
                error = self._refuse(query.params["items"])
                query = operation.send([]) if error is None else operation.throw(error)
        except StopIteration as end:
            isolated: Outcome = end.value
            return isolated

    def _refuse(self, items: Sequence[int]) -> StoreError | None:
        self.asked.append(items)
        if self.most is not None and len(items) > self.most:
            return RowLocked("statement timeout", name="QueryCanceled")
        return next((self.errors[item] for item in items if item in self.errors), None)

    def split_locked(self, items: Sequence[int]) -> Operation[Split[int]]:
        """Say who has locked what."""
        yield from ()
        locked = [item for item in items if isinstance(self.errors.get(item), RowLocked)]
        return [item for item in items if item not in locked], locked


def write(items: Sequence[int]) -> Operation[Sequence[int]]:
    rows: list[Row] = yield Query("write", {"items": items})
    assert rows == []
    return items


def refusal(item: int) -> RowRefused:
    return RowRefused(f"not {item}", name="RaiseException")


@rule("M2")
@given(some_items)
def test_each_item_is_written_once_or_refused_and_in_order(bad: set[int]) -> None:
    server = Server({item: refusal(item) for item in bad})
    isolated = server.run(isolate(ITEMS, write))
    written = [item for answer in isolated.answers for item in answer]
    assert written == [item for item in ITEMS if item not in bad]
    assert isolated.refused == [(item, f"RaiseException: not {item}") for item in sorted(bad)]
    assert isolated.locked == []


@rule("M2")
@given(st.integers(1, 1_000), st.data())
def test_one_bad_item_costs_two_statements_for_each_halving(size: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, size - 1))
    server = Server({bad: refusal(bad)})
    assert server.run(isolate(range(size), write)).refused == [(bad, f"RaiseException: not {bad}")]
    assert len(server.asked) <= 1 + 2 * ceil(log2(size))


@rule("M2")
def test_what_was_tried_together_is_not_tried_together_again() -> None:
    server = Server({})
    isolated = server.run(isolate(ITEMS, write, tried=refusal(7)))
    assert isolated.answers == [ITEMS[:32], ITEMS[32:]]
    assert server.run(isolate([7], write, tried=refusal(7))).refused == [
        (7, "RaiseException: not 7")
    ]


@rule("M2")
@pytest.mark.parametrize("error", [ServerTrouble("gone"), RowLocked("lock timeout")])
def test_what_is_no_rows_fault_or_waits_is_raised(error: StoreError) -> None:
    server = Server({7: error})
    with pytest.raises(type(error)):
        server.run(isolate(ITEMS, write))
    assert server.asked == [ITEMS]


@rule("M2")
@given(some_items)
def test_with_time_to_wait_each_item_that_blocks_is_found(slow: set[int]) -> None:
    server = Server({item: RowLocked("waits", name="LockNotAvailable") for item in slow})
    isolated = server.run(isolate(ITEMS, write, waits_until=FUTURE))
    assert isolated.refused == [(item, "LockNotAvailable: waits") for item in sorted(slow)]


@rule("M2")
def test_past_the_time_one_item_is_named_for_all_that_are_left_with_it() -> None:
    server = Server({40: RowLocked("waits", name="LockNotAvailable")})
    isolated = server.run(isolate(ITEMS, write, tried=refusal(7), waits_until=PAST))
    assert isolated.answers == [ITEMS[:32]]
    assert isolated.refused == [
        (32, "LockNotAvailable: waits (this one, or one of the 31 after it that were left with it)")
    ]


@rule("M2")
@given(some_items, some_items)
def test_locked_items_are_split_off_and_the_others_written(bad: set[int], locked: set[int]) -> None:
    locks: dict[int, StoreError] = {item: RowLocked("lock timeout") for item in locked}
    server = Server({item: refusal(item) for item in bad} | locks)
    isolated = server.run(isolate(ITEMS, write, split_locked=server.split_locked))
    written = {item for answer in isolated.answers for item in answer}
    assert written == set(ITEMS) - bad - locked
    assert {item for item, _ in isolated.refused} == bad - locked
    assert set(isolated.locked) == locked


@rule("M2")
def test_a_statement_that_takes_too_long_with_no_lock_raises_for_a_smaller_batch() -> None:
    server = Server({}, most=32)
    with pytest.raises(RowLocked):
        server.run(isolate(ITEMS, write, split_locked=server.split_locked))
    alone = Server({}, most=0)
    isolated = alone.run(isolate([7], write, split_locked=alone.split_locked))
    assert isolated.refused == [(7, "QueryCanceled: statement timeout")]
