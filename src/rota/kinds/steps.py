"""Verbs of a kind of jobs, each defined once for plain code and for code that awaits.

A definition is a generator of steps: `rows = yield partial(self.jobs.call, …)`. The plain method
makes this call, and the awaited method that of its twin, `self.jobs.acall`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[partial[Any], Any, T]


class RunsSteps:
    """Runs the steps of a definition in both ways, for `rota.records.both`."""

    def _run(self, steps: Steps[T], connection: object = None) -> T:
        try:
            _walk(steps, _call).send(None)  # it never waits
        except StopIteration as end:
            returned: T = end.value
            return returned
        raise AssertionError

    async def _arun(self, steps: Steps[T], connection: object = None) -> T:
        return await _walk(steps, _call_twin)


async def _walk(steps: Steps[T], call: Callable[[partial[Any]], Awaitable[Any]]) -> T:
    resume: Callable[[Any], partial[Any]] = steps.send
    reply: Any = None
    while True:
        try:
            step = resume(reply)
        except StopIteration as end:
            returned: T = end.value
            return returned
        try:
            resume, reply = steps.send, await call(step)
        except Exception as error:  # noqa: BLE001 - the definition may expect it
            resume, reply = steps.throw, error


async def _call(step: partial[Any]) -> Any:
    return step()


async def _call_twin(step: partial[Any]) -> Any:
    method: Any = step.func
    twin = getattr(method.__self__, f"a{method.__name__}")
    return await twin(*step.args, **step.keywords)
