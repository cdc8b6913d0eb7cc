"""Handlers that take many jobs in one call, in an application's own tests: a list of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

import rota
from rota.testing import Harness, run_twice
from tests.support.rules import rule


@dataclass
class Doc:
    id: int


calls: list[list[int]] = []


def declare(app: rota.App) -> None:
    """A type whose handler takes a list, and notes it."""
    calls.clear()

    @app.job("index", chunk=100, takes_context=True, retry=rota.Fixed("1h"))
    def index(ctx: rota.Context, docs: list[Doc]) -> list[object]:
        calls.append([doc.id for doc in docs])
        assert [item.job.payload["id"] for item in ctx.items] == calls[-1]
        with ctx.items[0].effect(f"index:{docs[0].id}") as effect:
            if not effect.done:
                effect.result = "indexed"
        return [ValueError("too small") if doc.id < 0 else {"id": doc.id} for doc in docs]


@pytest.fixture(params=["connection", "database"])
def harness(request: pytest.FixtureRequest, database: str) -> Iterator[Harness]:
    if request.param == "database":
        app = rota.App(database)
        declare(app)
        with Harness(app) as harness:
            yield harness
        return
    app = rota.App("postgresql://nobody@127.0.0.1:1/none", release="1")
    declare(app)
    with (
        psycopg.connect(database) as connection,
        connection.transaction(force_rollback=True),
        Harness(app, connection=connection) as harness,
    ):
        yield harness


@rule("M50")
def test_a_harness_runs_one_job_or_all(harness: Harness) -> None:
    index = harness.app.types["index"]
    performed = harness.perform(index.new(Doc(7)))
    assert (performed.job.status, performed.job.result) == ("succeeded", {"id": 7})
    performed = harness.perform(index.new(Doc(-1)))
    assert isinstance(performed.error, ValueError)
    for at in range(3):
        index.enqueue(Doc(at))
    harness.drain()
    assert sorted(at for ids in calls for at in ids) == [-1, 0, 1, 2, 7]
    assert harness.enqueued("index", id=-1).status == "failed"


@rule("M50")
def test_a_second_run_is_compared(database: str) -> None:
    app = rota.App(database)
    declare(app)
    run_twice(app.types["index"].new(Doc(1)))
    assert calls == [[1]] * 4, "two were killed before the effect"
    app.close()
