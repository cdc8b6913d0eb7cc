"""What a handler's end means: its error, or a group of them, and what it returned."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from io import StringIO
from typing import Any

import pytest

import rota
from rota.declare.result import is_lazy, read_error
from rota.errors import AttemptCancelled
from rota.model.outcome import Errored, HandedBack
from tests.support.rules import rule

DEAD, CANCEL, WRONG = rota.Dead("no such account"), rota.Cancel("late"), ValueError("x")
STOP, CANCELLED = AttemptCancelled("enough"), asyncio.CancelledError()
ASKED = HandedBack("it was asked to")


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("several", errors)


def deep(error: BaseException) -> BaseException:
    for _ in range(3_000):
        error = group(error)
    return error


@rule("M41")
@pytest.mark.parametrize(
    ("error", "end"),
    [
        (DEAD, DEAD),
        (group(DEAD), DEAD),
        (group(group(CANCEL), group(DEAD, DEAD)), CANCEL),
        (group(CANCELLED, DEAD, STOP), DEAD),
        (deep(DEAD), DEAD),
        (group(DEAD, WRONG), None),
        (WRONG, None),
        (group(CANCELLED, group(STOP)), ASKED),
    ],
)  # fmt: skip
def test_a_group_of_outcomes_and_stops_counts_as_the_first_outcome(
    error: BaseException, end: object
) -> None:
    found = read_error(error, ASKED)
    assert found == Errored(error) if end is None else found is end


def count() -> Iterator[int]:
    yield 1


async def acount() -> AsyncIterator[int]:
    yield 1


@rule("M2")
def test_a_value_whose_work_is_still_to_be_done_is_lazy_and_what_has_been_done_is_not() -> None:
    lazies: list[Any] = [
        count(), acount(), map(str, [1]), filter(None, [1]), zip([1], strict=True),
        itertools.count(), functools.partial(count), count, len, [].append, lambda: 1, Future(),
    ]  # fmt: skip
    assert [one for one in lazies if not is_lazy(one)] == []
    done: list[Any] = [1, "text", [1], {"a": 1}, (1,), range(3), StringIO("x"), object(), {1}]
    assert [one for one in done if is_lazy(one)] == []
