"""`rota mcp`: what an agent reads, what it may do, and what stands in the action log."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.cli.here import Here

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from rota.cli.mcp_tools import write

Connection = psycopg.Connection[TupleRow]


class Agent:
    """A client that asks `rota mcp`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def fails(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error, answer
        return str(getattr(answer.content[0], "text", ""))

    async def ask(self, tool: str, **arguments: Any) -> Any:
        answer = await self.client.call_tool(tool, arguments)
        text = str(getattr(answer.content[0], "text", ""))
        assert not answer.is_error, text
        return json.loads(text)


@asynccontextmanager
async def begin(rota: Here, *options: str) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rota", "mcp", *options],
        env={**os.environ, **rota.environment},
        cwd=rota.directory,
    )
    async with Client(server) as client:
        yield Agent(client)


async def test_an_agent_reads_what_the_commands_print_and_cannot_act(rota: Here) -> None:
    rota.apart("sync")
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}')
    async with begin(rota) as agent:
        assert await agent.names() == {"overview", "doctor", "find", "job", "errors", "docs"}
        found = await agent.ask("find", job_type="report")
        assert found["jobs"] == rota.ok("jobs", "--json").json["jobs"]
        assert "more than a day ago" in found["notes"][0]
        one = await agent.ask("job", id=found["jobs"][0]["id"])
        assert one["job"]["payload"] == {"day": "2026-01-14"}
        assert (await agent.ask("overview"))["queues"]
        assert {check["level"] for check in (await agent.ask("doctor"))["checks"]} > {"bad"}
        assert "JobNotFound" in await agent.fails("job", id=99)
        [first, *_] = (await agent.ask("docs", words="dead letter queue"))["pages"]
        assert "# Retries" in (await agent.ask("docs", words=first["page"]))["text"]


async def test_an_agent_acts_only_with_a_reason_and_its_name_is_logged(
    rota: Here, connection: Connection
) -> None:
    rota.apart("sync")
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}')
    rota.ok("discard", "1")
    async with begin(rota, "--allow", "act", "--by", "agent of ann") as agent:
        assert "give a reason" in await agent.fails("retry", ids=[1], reason=" ")
        fixed = {"day": "2026-01-15"}
        await agent.ask("requeue", id=1, payload=fixed, reason="--a typo")
        await agent.ask("pause", queue="default", reason="look first")
        await agent.ask("resume", queue="default", reason="done")
        await agent.ask("cancel", ids=[2], reason="not needed")
    logged = connection.execute(
        "select verb, why from rota.action where by = 'agent of ann' order by id"
    ).fetchall()
    assert logged == [
        ("requeue", "--a typo"),
        ("pause", "look first"),
        ("resume", "done"),
        ("cancel", "not needed"),
    ]


async def test_a_server_outlives_its_database_and_an_app_that_prints(rota: Here) -> None:
    rota.environment["ROTA_DATABASE_URL"] = "postgresql://postgres@127.0.0.1:1/x"
    async with begin(rota) as agent:
        for _ in range(2):
            assert "DatabaseUnavailable" in await agent.fails("overview")
        shop = rota.directory / "shop.py"
        shop.write_text(f"{shop.read_text()}\nprint('ready')\n")
        assert "DatabaseUnavailable" in await agent.fails("overview")
        assert "stauts" in await agent.fails("find", stauts="dead")
        assert (await agent.ask("docs", words="retry"))["pages"]


def test_a_long_answer_is_cut_and_says_what_it_left_out() -> None:
    answer = json.loads(write({"jobs": [{"text": "x" * 900}] * 100}, ["a note"], most=2_000))
    assert answer["left_out"]["rows"] + len(answer["jobs"]) == 100
    assert answer["left_out"]["characters"] > 0 and answer["notes"] == ["a note"]
