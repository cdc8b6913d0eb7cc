"""What is read of jobs can be returned from a view, in the form of `--json`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg.rows import TupleRow
from pydantic import BaseModel, TypeAdapter

import rota
from rota.model.record import Record
from tests.cli.here import Here
from tests.support.rules import rule


@dataclass
class Shop:
    """An App with jobs that have been through everything that is read of one."""

    app: rota.App
    done: int
    dead: int


@pytest.fixture
def shop(app: rota.App, connection: psycopg.Connection[TupleRow]) -> Shop:
    @app.job("report", takes_context=True)
    def report(ctx: rota.Context, pages: int) -> dict[str, int]:
        if pages < 0:
            raise rota.Dead("less than nothing")
        return {"pages": pages}

    app.schedule("nightly", "0 2 * * *", report.new(1).using(meta={"by": "night"}))
    app.sync()
    done = report.using(meta={"tenant": "acme"}, timeout="90s").enqueue(3).id
    dead = report.enqueue(-1).id
    app.drain()
    connection.execute(
        "update rota.job set progress = %s where id = %s",
        ['{"done": 1, "total": 4, "note": "page 1", "at": "2026-01-14T09:30:00+01:00"}', dead],
    )
    return Shop(app, done, dead)


@rule("M72")
def test_it_has_the_names_and_the_values_of_the_command_line(
    shop: Shop, database: str, tmp_path: Path
) -> None:
    line, app = Here(tmp_path, ROTA_DATABASE_URL=database), shop.app

    def asked(*command: str) -> Any:
        return json.loads(line.ok(*command, "--json").out)

    assert asked("jobs", "--since", "1h")["jobs"] == [
        app.get(job).to_dict() for job in (shop.dead, shop.done)
    ]
    assert asked("job", str(shop.dead)) == app.jobs.timeline(shop.dead).to_dict()
    assert (
        asked("schedules", "show", "nightly")["schedule"] == app.schedules.get("nightly").to_dict()
    )
    assert asked("queues")["queues"] == [queue.to_dict() for queue in app.queues.list()]
    shown, told = asked("stats"), app.queues.stats().to_dict()
    assert shown.keys() == told.keys() and shown["jobs"] == told["jobs"]
    assert shown["types"] == told["types"]


READ: list[Callable[[Shop], Any]] = [
    lambda shop: shop.app.get(shop.done),
    lambda shop: shop.app.get(shop.dead),
    lambda shop: shop.app.get(shop.dead).progress,
    lambda shop: shop.app.types["report"].enqueue(pages=1),
    lambda shop: shop.app.jobs.timeline(shop.dead),
    lambda shop: shop.app.jobs.timeline(shop.dead).attempts[0],
    lambda shop: shop.app.queues.stats(),
    lambda shop: shop.app.schedules.get("nightly"),
    lambda shop: shop.app.drain(),
    lambda shop: shop.app.retry(shop.dead),
    lambda _: rota.records.BatchEnd(1, total=3, succeeded=1, dead=1, cancelled=1),
]


async def test_each_can_be_returned_from_a_view_of_fastapi(shop: Shop) -> None:
    for number, read in enumerate(READ):
        value = await asyncio.to_thread(read, shop)
        await _check_views(value, number)


async def _check_views(value: Record, number: int) -> None:
    kind = type(value)

    class Wrapped(BaseModel):
        """One in a model of the application."""

        value: kind  # type: ignore[valid-type]

    site = FastAPI()
    site.get("/annotated", response_model=kind)(lambda: value)
    site.get("/listed", response_model=list[kind])(lambda: [value])  # type: ignore[valid-type]
    site.get("/wrapped", response_model=Wrapped)(lambda: Wrapped(value=value))
    site.get("/bare", response_model=None)(lambda: value)
    site.get("/unnamed", response_model=dict[str, Any])(lambda: {"value": value})
    transport = httpx.ASGITransport(app=site)
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
        paths = ("annotated", "listed", "wrapped", "bare", "unnamed")
        found = {path: (await client.get(f"/{path}")).json() for path in paths}
    told = value.to_dict()
    assert json.loads(json.dumps(told)) == told == dict(value)
    wrapped = {"value": told}
    assert found == {
        "annotated": told, "listed": [told], "wrapped": wrapped, "bare": told, "unnamed": wrapped,
    }, number  # fmt: skip
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    assert schema["properties"].keys() == set(schema["required"]) == told.keys(), number


def test_the_schema_says_what_an_instant_a_status_and_the_progress_are() -> None:
    schema = TypeAdapter(rota.Job).json_schema(mode="serialization")["properties"]
    assert schema["run_at"] == {"type": "string", "format": "date-time"}
    assert "dead" in schema["status"]["enum"]
    assert schema["progress"]["anyOf"][0]["properties"].keys() == {"done", "total", "note", "at"}
    assert schema["payload"] == {"type": "object"}


def test_in_a_model_it_stays_the_object_until_it_becomes_json() -> None:
    class Wrapped(BaseModel):
        """One in a model of the application."""

        enqueued: rota.Enqueued

    wrapped = Wrapped(enqueued=rota.Enqueued(1, True, "queued"))
    assert wrapped.model_dump() == {"enqueued": rota.Enqueued(1, True, "queued")}
    assert json.loads(wrapped.model_dump_json())["enqueued"]["id"] == 1


@rule("M72")
def test_progress_has_a_fraction_where_the_total_is_known(
    shop: Shop, connection: psycopg.Connection[TupleRow]
) -> None:
    progress = shop.app.get(shop.dead).progress
    assert isinstance(progress, rota.records.Progress)
    assert (progress.done, progress.total, progress.note) == (1, 4, "page 1")
    assert progress.fraction == 0.25
    assert rota.records.Progress(0, None, None, progress.at).fraction is None
    assert rota.records.Progress(0, 0, None, progress.at).fraction == 1
    assert rota.records.Progress(5, 4, None, progress.at).fraction == 1
    assert shop.app.get(shop.done).progress is None
    connection.execute("update rota.job set progress = '[1]' where id = %s", [shop.dead])
    assert shop.app.get(shop.dead).to_dict()["progress"] == [1], "an odd one keeps nobody out"
