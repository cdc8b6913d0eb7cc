"""Results that the next job takes: what is refused before anything is inserted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

import rota
from tests.support.rules import rule


@dataclass
class Item:
    n: int


app = rota.App("postgresql://nobody@127.0.0.1:1/none")


@app.job
def square(n: int) -> int:
    return n * n


@app.job
def other(n: int) -> int:
    return n


@app.job(history="failures")
def forgotten() -> int:
    return 1


@app.job(unique="double:{n}")
def double(n: int, plus: int = 0) -> int:
    return 2 * n + plus


@app.job(ordered="place:{from_}")
def move(from_: str, to: Any) -> None: ...


@app.job
def sign(secret: rota.Secret[str]) -> None: ...


@app.job(chunk=10)
def collect(items: list[Item]) -> None: ...


FIRST = square.new(3)
RESULT = rota.result_of(FIRST)
TAKING = other.new(RESULT)


@rule("M72")
@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda: app.enqueue(TAKING), "it must follow that job"),
        (lambda: other.enqueue(RESULT), "it must follow that job"),
        (lambda: app.enqueue_many([FIRST, TAKING]), "it must follow that job"),
        (lambda: app.schedule("s", "0 7 * * *", TAKING), "it must follow that job"),
        (TAKING.statement, "it must follow that job"),
        (lambda: app.enqueue(other.new(3), then=TAKING), "a job that it does not follow"),
        (lambda: app.enqueue(FIRST, then=[square.new(1), TAKING]), "that it does not follow"),
        (lambda: app.enqueue(FIRST, then={"failed": TAKING}), "only after a success"),
        (lambda: app.enqueue(FIRST, then={"ended": TAKING}), "only after a success"),
        (lambda: app.enqueue(FIRST, then={"failed": [FIRST, FIRST]}), "only after a success"),
        (lambda: app.enqueue(FIRST, then=[FIRST] * 101), "at most 100 jobs"),
        (lambda: app.enqueue(FIRST, then=cast("Any", ["other"])), "job_type.new"),
        (lambda: move.new("here", [RESULT]), "is an argument of its own"),
        (lambda: move.new(rota.result_of(FIRST), 1), "not known yet"),  # type: ignore[arg-type]
        (lambda: double.new(RESULT), "not known yet"),
        (lambda: sign.new(RESULT), "stored in clear"),  # type: ignore[arg-type]
        (lambda: cast("Any", collect).new(n=RESULT), "takes no result"),
        (lambda: other.new(m=RESULT), "no such argument"),  # type: ignore[call-arg]
        (lambda: rota.result_of(square), "job_type.new"),  # type: ignore[call-overload]
        (lambda: rota.result_of(forgotten.new()), "keeps no results"),
        (lambda: rota.results_of([FIRST] * 1_001), "at most 1,000"),
    ],
)
def test_a_result_that_could_not_arrive_is_refused(use: Callable[[], object], why: str) -> None:
    with pytest.raises(rota.UsageError, match=why):
        use()


@rule("M51")
def test_keys_are_made_of_the_arguments_that_are_known() -> None:
    taken = rota.result_of(FIRST)
    assert move.new("here", taken).group_key == "place:here"
    assert double.using(key="a").new(n=taken).options.idempotency_key == "a"
    assert double.new(1, taken).key == "double:1"
    assert double.new(1, plus=taken).payload_json == '{"n":1}'
