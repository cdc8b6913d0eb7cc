"""What a checker says of results that the next job takes."""

from __future__ import annotations

from typing import assert_type

import rota

app = rota.App()


@app.job
async def square(number: int) -> int:
    return number * number


@app.job
def double(number: int) -> int:
    return 2 * number


@app.job
def shout(text: str) -> str:
    return text.upper()


@app.job
def add_up(numbers: list[int]) -> int:
    return sum(numbers)


first = square.new(3)
second = double.new(rota.result_of(first))
assert_type(second, rota.records.NewJob[int])
assert_type(second.using(priority=5), rota.records.NewJob[int])
assert_type(rota.result_of(first), int)
assert_type(rota.result_of(second), int)
assert_type(rota.results_of([first, first]), list[int])

app.enqueue(first, then=second)
app.enqueue(first, then=[second, double.new(rota.result_of(second))])
app.enqueue(first, then={"succeeded": [second], "failed": shout.new("it failed")})
app.batch([first, square.new(4)], then=add_up.new(rota.results_of([first])))

shout.new(rota.result_of(second))  # E: arg-type | reportArgumentType
double.new(rota.results_of([first]))  # E: arg-type | reportArgumentType
rota.result_of(3)  # E: call-overload | reportArgumentType, reportCallIssue
rota.result_of(square)  # E: call-overload | reportArgumentType, reportCallIssue

jobs: list[rota.records.NewJob] = [first, second, shout.new("a")]
app.enqueue_many(jobs)
