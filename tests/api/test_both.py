"""One definition of a call makes a method for plain code and one to be awaited."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient

import rota
from rota import App
from rota.records import Batches, Breakers, Effects, Groups, JobActions, Limits, Queues, Schedules
from rota.testing.harness import Harness
from tests.support.rules import rule
from tests.worker.table import Connection

KINDS = (App, JobActions, Batches, Breakers, Effects, Groups, Limits, Queues, Schedules, Harness)


def pairs() -> Iterator[tuple[Any, Any]]:
    """All, but for `run`: only that which owns its loop hears signals by itself."""
    for kind in KINDS:
        for name in dir(kind):
            twin = getattr(kind, f"a{name}", None)
            if callable(twin) and callable(getattr(kind, name)) and name != "run":
                yield getattr(kind, name), twin


@rule("M20")
def test_both_methods_take_the_same_and_only_one_is_awaited() -> None:
    found = list(pairs())
    assert len(found) > 55
    for plain, awaited in found:
        same = dict(inspect.signature(plain).parameters)
        other = dict(inspect.signature(awaited).parameters)
        assert list(same) == list(other), plain
        assert [parameter.default for parameter in same.values()] == [
            parameter.default for parameter in other.values()
        ]
        assert not inspect.iscoroutinefunction(plain)
        assert inspect.iscoroutinefunction(awaited) or awaited.__name__ == "arun_twice"
        assert awaited.__name__ == f"a{plain.__name__}"
        assert plain.__doc__, plain
        assert awaited.__doc__, awaited
        for method in (plain, awaited):
            assert not inspect.isgeneratorfunction(inspect.unwrap(method)), method
    assert get_type_hints(App.cancel)["return"] is rota.Status


async def test_fastapi_takes_a_call_as_a_dependency_and_as_a_route(
    database: str, connection: Connection
) -> None:
    app, site = rota.App(database), FastAPI()
    site.add_api_route("/runs/{name}", app.schedules.aruns)

    @site.get("/effects")
    async def effects(found: list[Any] = Depends(app.effects.afind)) -> int:  # noqa: B008
        return len(found)

    client = AsyncClient(transport=ASGITransport(site), base_url="http://site")
    async with client:
        assert (await client.get("/effects")).json() == 0
        with pytest.raises(rota.errors.ScheduleNotFound):
            await client.get("/runs/none")
    await app.aclose()
