"""Oban for Python."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, DEFAULTS = "one at a time", "defaults"
SLOTS = 100
LED = "the leader alone rescues; when it is gone, another is elected after up to a minute"
SYSTEM = System(
    name="Oban",
    module="oban_queue",
    package="oban",
    packages=("oban>=0.7,<0.8",),
    setups=(
        Setup(name=LEAD, about="a queue of 100, a pool of 10", history="kept", is_lead=True),
        Setup(name=DEFAULTS, about="a queue of 10", history="kept", is_default=True),
    ),
    left="select count(*) from oban_jobs where state in "
    "('available', 'executing', 'retryable', 'scheduled')",
    copied=(Rows("oban_jobs", {"id": ""}),),
    durable="each commit",
    recovery="lifeline each 5 s, rescue_after 10 s: by the job's age, whether its worker lives or "
    "not; by the leader, elected each 30 s, which is no setting",
    recover_s=75,
    why_lost=LED,
    why_held=LED,
    default_recovery="5 minutes: rescue_after",
    newest_python=True,
)


class Oban(Harness):
    """One worker process."""

    system = SYSTEM

    async def _start(self, **options: Any) -> Any:
        oban = library("oban")
        self._pool = await oban.Oban.create_pool(dsn=self.url)
        made = oban.Oban(pool=self._pool, **options)

        def declare(kind: Kind) -> Any:
            async def handle(_: Any, job: Any) -> None:
                await self.handle(kind, job.args["n"])

            return oban.worker(queue="default")(type(f"Worker{kind}", (), {"process": handle}))

        self.workers = {kind: declare(kind) for kind in KINDS}
        return made

    async def prepare(self) -> None:
        connection = await library("psycopg").AsyncConnection.connect(self.url, autocommit=True)
        async with connection:
            await connection.execute(library("oban.schema").install_sql())

    async def open(self) -> None:
        self._oban = await self._start()

    async def close(self) -> None:
        await self._pool.close()

    async def one(self, kind: Kind, n: int) -> None:
        await self._oban.enqueue(self.workers[kind].new({"n": n}))

    async def bulk(self, kind: Kind, numbers: range) -> None:
        new = self.workers[kind].new
        await self._oban.enqueue_many([new({"n": n}) for n in numbers])

    async def in_transaction(self, n: int) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("insert into application (n) values (%s)", [n])
            await self._oban.enqueue(self.workers["noop"].new({"n": n}), conn=connection)

    def work(self, slots: int | None) -> None:
        asyncio.run(self._work(slots))

    async def _work(self, slots: int | None) -> None:
        options: dict[str, Any] = {}
        if self.lease_s is not None:
            options["lifeline"] = {"interval": 5.0, "rescue_after": self.lease_s}
        limit = slots or (10 if self.setup.name == DEFAULTS else SLOTS)
        oban = await self._start(queues={"default": limit}, **options)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(oban)
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(Oban)
