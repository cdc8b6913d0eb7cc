"""PgQueuer, with asyncpg."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, DEFAULTS = "one at a time", "defaults"
BATCH = 1_000
LOOK_EACH_S = 2
"""Only who looks for jobs finds those of a dead worker, and an idle worker is not told of them."""
SYSTEM = System(
    name="PgQueuer",
    module="pgqueuer_queue",
    package="pgqueuer",
    packages=("pgqueuer[asyncpg]>=1.6,<2",),
    setups=(
        Setup(name=LEAD, about=f"batch_size={BATCH:,}, asyncpg, uvloop", history="a log of events",
              is_lead=True),
        Setup(name=DEFAULTS, about="run()", history="a log of events", is_default=True),
    ),
    left="select count(*) from pgqueuer",
    copied=(Rows("pgqueuer", {"id": ""}),),
    durable="each commit",
    recovery="heartbeat_timeout of 10 s, an idle worker looks each 2 s: dequeue_timeout",
    default_recovery="30 seconds, heartbeat_timeout, and up to 30 more, dequeue_timeout",
)  # fmt: skip


class PgQueuer(Harness):
    """One worker process with one connection, as its documentation shows."""

    system = SYSTEM

    async def _connect(self) -> Any:
        return await library("asyncpg").connect(self.url)

    def _queries_of(self, connection: Any) -> Any:
        driver = library("pgqueuer.db").AsyncpgDriver(connection)
        return library("pgqueuer.queries").Queries(driver)

    async def prepare(self) -> None:
        await self._queries_of(await self._connect()).install()

    async def open(self) -> None:
        self._connection = await self._connect()
        self._queries = self._queries_of(self._connection)

    async def close(self) -> None:
        await self._connection.close()

    async def one(self, kind: Kind, n: int) -> None:
        await self._queries.enqueue(kind, b"%d" % n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        count = len(numbers)
        await self._queries.enqueue([kind] * count, [b"%d" % n for n in numbers], [0] * count)

    async def in_transaction(self, n: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute("insert into application (n) values ($1)", n)
            await self._queries.enqueue("noop", b"%d" % n)

    def work(self, slots: int | None) -> None:
        library("uvloop").run(self._work(slots))

    async def _work(self, slots: int | None) -> None:
        queue = library("pgqueuer").PgQueuer.from_asyncpg_connection(await self._connect())
        for kind in KINDS:
            queue.entrypoint(kind)(self._handler(kind))
        options: dict[str, Any] = {}
        if self.setup.name != DEFAULTS:
            options["batch_size"] = BATCH
        if slots is not None:
            options |= {"batch_size": max(1, slots // 2), "max_concurrent_tasks": slots}
        if self.lease_s is not None:
            options["heartbeat_timeout"] = timedelta(seconds=self.lease_s)
            options["dequeue_timeout"] = timedelta(seconds=LOOK_EACH_S)
        await asyncio.gather(queue.qm.run(**options))

    def _handler(self, kind: Kind) -> Any:
        async def handle(job: Any) -> None:
            await self.handle(kind, int(job.payload))

        return handle


if __name__ == "__main__":
    main(PgQueuer)
