"""What a handler's end means: its error, or a group of them, and what it returned."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from io import StringIO
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import rota
from rota.declare.result import read_error, read_return
from rota.errors import AttemptCancelled
from rota.model.outcome import Errored, HandedBack, Succeeded
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


async def work() -> None: ...


JOB: Any = SimpleNamespace(id=1, job_type="t")


@rule("M2")
@pytest.mark.parametrize(
    "unfinished",
    [
        count(), acount(), map(str, [1]), filter(None, [1]), zip([1], strict=True),
        itertools.count(), [count()], (1, count()), {"a": count()}, Future(),
    ],
)  # fmt: skip
def test_an_unfinished_value_that_is_returned_fails_the_job(unfinished: Any) -> None:
    end = read_return(JOB, unfinished)
    assert isinstance(end, Errored)
    assert "whose work nobody does" in str(end.error)


@rule("M2", "M41")
def test_an_error_says_what_is_wrong_with_a_result_and_ends_all_coroutines_in_it() -> None:
    left = [work(), work()]
    for result, text in ((left, "returned a coroutine"), (rota.Retry, "return an instance")):
        end = read_return(JOB, result)
        assert isinstance(end, Errored)
        assert text in str(end.error)
    assert [inspect.getcoroutinestate(coroutine) for coroutine in left] == ["CORO_CLOSED"] * 2


@rule("M2")
@pytest.mark.parametrize(
    "done",
    [
        1, "text", [1], {"a": 1}, (1,), range(3), StringIO("x"), object(), {1}, {}.keys(), Mock(),
    ],
)  # fmt: skip
def test_what_is_done_succeeds_whether_or_not_it_can_be_kept(done: Any) -> None:
    assert isinstance(read_return(JOB, done), Succeeded)
