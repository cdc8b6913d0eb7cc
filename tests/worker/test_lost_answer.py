"""A write was committed, and its answer was lost with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import rota
from rota.errors import DatabaseUnavailable
from rota.model.outcome import HandedBack
from rota.observe.events import Bus, JobSucceeded, LeaseLost
from rota.runtime.clock import SYSTEM_CLOCK
from rota.store.db import Database
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.finisher import Finisher
from rota.worker.gates.suspects import SuspectGate
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.alone import lone_executor, make_spec
from tests.worker.hand import Hand
from tests.worker.table import Connection, over, put, rows
from tests.worker.test_slots import claimed_job


class Wire:
    """Between a worker and the server; the answers to its finishes can be cut off."""

    def __init__(self, port: int) -> None:
        self.deaf = False
        self._port = port
        self._open: list[tuple[bool, asyncio.StreamWriter]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        first = await reader.read(65536)
        finishes = b"rota finish" in first
        self._open += [(finishes, writer), (finishes, back)]
        back.write(first)
        self._tasks.append(
            asyncio.create_task(self._pass_on(reader, back, answers_of_finishes=False))
        )
        self._tasks.append(
            asyncio.create_task(self._pass_on(there, writer, answers_of_finishes=finishes))
        )

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers_of_finishes: bool
    ) -> None:
        while data := await source.read(65536):
            if not (answers_of_finishes and self.deaf):
                sink.write(data)
        sink.close()

    async def cut(self) -> None:
        """Close the connections on which nothing was answered; new ones are whole."""
        await self._close([writer for finishes, writer in self._open if finishes])
        self.deaf = False

    async def aclose(self) -> None:
        """Close everything."""
        await self._close([writer for _, writer in self._open])
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _close(self, writers: list[asyncio.StreamWriter]) -> None:
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[tuple[str, Wire]]:
    """A way to the same database that can be cut."""
    there = psycopg.conninfo.conninfo_to_dict(url)
    between = Wire(int(there["port"] or 0))
    server = await asyncio.start_server(between.join, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield (
            psycopg.conninfo.make_conninfo(
                "", **{**there, "port": port, "sslmode": "disable", "gssencmode": "disable"}
            ),
            between,
        )
    finally:
        server.close()
        await between.aclose()


@rule("M13", "M32")
async def test_a_success_without_a_row_whose_answer_was_lost_is_no_lost_lease(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = asyncio.Event()

    @jobs.job("quiet", history="failures")
    async def quiet() -> None:
        await go.wait()

    job = put(connection, "quiet")
    async with wire(database) as (url, between), Hand(url, jobs, slots=1) as hand:
        early = put(connection, "quiet")
        await asyncio.to_thread(
            eventually, lambda: rows(connection, "select from rota.job where status = 'running'")
        )
        go.set()
        await hand.heard(JobSucceeded, job=job)
        await hand.heard(JobSucceeded, job=early)
        go.clear()
        late = put(connection, "quiet")
        await asyncio.to_thread(
            eventually, lambda: rows(connection, "select from rota.job where status = 'running'")
        )
        between.deaf = True
        go.set()
        await asyncio.to_thread(
            eventually,
            lambda: rows(connection, "select from rota.job") == [],
            what="the finish is committed",
        )
        await between.cut()
        await hand.heard(JobSucceeded, job=late)
    assert not [event for event in hand.events if isinstance(event, LeaseLost)]
    assert over(connection) == 0


@rule("M33")
async def test_a_suspect_whose_answer_was_lost_and_that_was_claimed_again_holds_no_other(
    free_port: int,
) -> None:
    gate = SuspectGate(SYSTEM_CLOCK, 60.0)
    executor, others = lone_executor(gate)
    gatekeeper, attempts, now = executor.gatekeeper, executor.attempts, SYSTEM_CLOCK.monotonic()
    first, again = claimed_job(1), claimed_job(1)

    class Away(StoreLink):
        async def run(self, operation: Operation[Any], *, atomic: bool = False) -> Any:
            attempts[1] = again  # this worker claims the job while it waits for an answer
            return await super().run(operation, atomic=atomic)

    database = Database(f"postgresql://127.0.0.1:{free_port}/none")
    stands: Any = others
    finisher = Finisher(
        make_spec(), Bus(), SYSTEM_CLOCK, attempts, Away(database, "finish"), stands
    )
    finisher.gatekeeper = gatekeeper
    for attempt in (first, again):
        attempt.is_suspect = True
        gatekeeper.take([attempt])
    attempts[1] = first
    assert await gate.ask([first]) == {}
    assert again in await gate.ask([again])
    Attempt.admit([first])
    first.end(HandedBack("no thread could be started"), now)
    finisher.take([first])
    with pytest.raises(DatabaseUnavailable):
        await finisher.tick()
    assert attempts == {1: again}
    assert await gate.ask([again]) == {}
