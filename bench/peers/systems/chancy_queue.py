"""Chancy, with its executor for asyncio."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bench.peers.harness import Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, DEFAULTS = "one at a time", "defaults"
SLOTS = 100
NAME = "bench.peers.systems.chancy_queue"
"""This module's name, also where it runs as `__main__`."""
SYSTEM = System(
    name="Chancy",
    module="chancy_queue",
    package="chancy",
    packages=("chancy>=0.26,<0.27", "psycopg[binary,pool]>=3.2"),
    setups=(
        Setup(
            name=LEAD,
            about="AsyncExecutor, concurrency=100, polling_interval=1",
            history="kept",
            is_lead=True,
        ),
        Setup(
            name=DEFAULTS,
            about="ProcessExecutor, as many as cores, polling_interval=5",
            history="kept",
            is_default=True,
        ),
    ),
    left="select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')",
    copied=(Rows("chancy_jobs", {"id": "gen_random_uuid()"}),),
    durable="each commit",
    recovery="heartbeat each 2 s, dead after 10 s, recovery each 5 s by the leader, elected each "
    "2 s for 5",
    default_recovery="90 s and up to 60 more, heartbeat_timeout and recovery; 2 minutes more if it "
    "was the leader",
)
MADE: dict[str, Harness] = {}
"""The harness of this process; one of the executor of processes makes its own."""


def _get() -> Harness:
    if "harness" not in MADE:
        MADE["harness"] = Chancy(SYSTEM.lead)
    return MADE["harness"]


async def noop(n: int) -> None:
    """Do nothing but count."""
    _get().ledger.count()


async def stamp(n: int) -> None:
    """Say that it begins."""
    _get().ledger.stamp(n)


async def work(n: int) -> None:
    """Work for a while."""
    await _get().ledger.work(n, _get().seconds)


def noop_here(n: int) -> None:
    """Do nothing but count, in a process."""
    _get().ledger.count()


def stamp_here(n: int) -> None:
    """Say that it begins, in a process."""
    _get().ledger.stamp(n)


class Chancy(Harness):
    """One worker process."""

    system = SYSTEM

    def _queue(self, slots: int | None) -> Any:
        made = library("chancy").Queue
        if self.setup.name == DEFAULTS:
            return made("default")
        return made(
            "default",
            concurrency=slots or SLOTS,
            executor="chancy.executors.asyncex.AsyncExecutor",
            polling_interval=1,
        )

    def _app(self) -> Any:
        plugins = []
        if self.lease_s is not None:
            plugins = [
                library("chancy.plugins.leadership").Leadership(poll_interval=2, timeout=5),
                library("chancy.plugins.recovery").Recovery(poll_interval=5),
            ]
        return library("chancy").Chancy(self.url, plugins=plugins)

    async def prepare(self) -> None:
        async with self._app() as app:
            await app.migrate()
            await app.declare(self._queue(None))

    async def open(self) -> None:
        self._chancy = self._app()
        await self._chancy.__aenter__()

    async def close(self) -> None:
        await self._chancy.__aexit__(None, None, None)

    def _job(self, kind: Kind, n: int) -> Any:
        suffix = "_here" if self.setup.name == DEFAULTS else ""
        function = f"{NAME}.{kind}{suffix}"
        return library("chancy").Job(func=function, kwargs={"n": n}, queue="default")

    async def one(self, kind: Kind, n: int) -> None:
        await self._chancy.push(self._job(kind, n))

    async def bulk(self, kind: Kind, numbers: range) -> None:
        async for _ in self._chancy.push_many([self._job(kind, n) for n in numbers]):
            pass

    async def in_transaction(self, n: int) -> None:
        rows = library("psycopg.rows").dict_row
        async with (
            self._chancy.pool.connection() as connection,
            connection.cursor(row_factory=rows) as cursor,
        ):
            await cursor.execute("insert into application (n) values (%s)", [n])
            await self._chancy.push_ex(cursor, self._job("noop", n))

    def work(self, slots: int | None) -> None:
        asyncio.run(self._work(slots))

    async def _work(self, slots: int | None) -> None:
        options = {}
        if self.lease_s is not None:
            options = {"heartbeat_poll_interval": 2, "heartbeat_timeout": int(self.lease_s)}
        async with self._app() as app:
            await app.declare(self._queue(slots), upsert=True)
            async with library("chancy").Worker(app, **options) as worker:
                await worker.wait_for_shutdown()


if __name__ == "__main__":
    sys.modules[NAME] = sys.modules["__main__"]
    main(Chancy)
