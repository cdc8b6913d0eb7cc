"""Procrastinate, with its asynchronous psycopg connector."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, DELETED, DEFAULTS = "one at a time", "successes not kept", "defaults"
SYSTEM = System(
    name="Procrastinate",
    module="procrastinate_queue",
    package="procrastinate",
    packages=("procrastinate>=3.5,<4",),
    setups=(
        Setup(name=LEAD, about="concurrency=30, a pool of 30", history="kept", is_lead=True),
        Setup(
            name=DELETED,
            about='delete_jobs="successful", concurrency=30, a pool of 30',
            history="failures only",
        ),
        Setup(name=DEFAULTS, about="run_worker_async()", history="kept", is_default=True),
    ),
    left="select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
    copied=(Rows("procrastinate_jobs", {"id": ""}),),
    durable="each commit",
    recovery="heartbeat each 2 s, a worker without one for 10 s is stalled; a periodic task "
    "retries stalled jobs each 5 s, as its how-to shows",
    default_recovery="never: the how-to's periodic task is the application's",
)
SLOTS = 30
"""The best of 10, 30 and 100: each claim and each finish is a statement of its own."""
HEARTBEAT_S, RETRY_EACH_S = 2.0, 5


class Procrastinate(Harness):
    """One worker process."""

    system = SYSTEM

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        procrastinate = library("procrastinate")

        logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
        size = {} if setup.name == DEFAULTS else {"min_size": 4, "max_size": SLOTS}
        connector = procrastinate.PsycopgConnector(conninfo=self.url, **size)
        self.app = procrastinate.App(connector=connector)
        self.tasks = {kind: self.app.task(name=kind)(self._handler(kind)) for kind in KINDS}

    def _handler(self, kind: Kind) -> Any:
        async def handle(n: int) -> None:
            await self.handle(kind, n)

        return handle

    async def prepare(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async()
        self._connection = await library("psycopg").AsyncConnection.connect(
            self.url, autocommit=True
        )

    async def close(self) -> None:
        await self._connection.close()
        await self.app.close_async()

    async def one(self, kind: Kind, n: int) -> None:
        await self.tasks[kind].defer_async(n=n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        await self.tasks[kind].batch_defer_async(*({"n": n} for n in numbers))

    async def in_transaction(self, n: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute("insert into application (n) values (%s)", [n])
            await self.tasks["noop"].configure(connection=self._connection).defer_async(n=n)

    def work(self, slots: int | None) -> None:
        asyncio.run(self._work(slots))

    async def _work(self, slots: int | None) -> None:
        options: dict[str, Any] = {}
        if slots is not None or self.setup.name != DEFAULTS:
            options["concurrency"] = slots or SLOTS
        if self.setup.name == DELETED:
            options["delete_jobs"] = "successful"
        async with self.app.open_async(), contextlib.AsyncExitStack() as stack:
            if self.lease_s is not None:
                options |= {
                    "update_heartbeat_interval": HEARTBEAT_S,
                    "stalled_worker_timeout": self.lease_s,
                }
                retrier = asyncio.create_task(self._retry_stalled(self.lease_s))
                stack.callback(retrier.cancel)
            await self.app.run_worker_async(**options)

    async def _retry_stalled(self, lease_s: float) -> None:
        # Its how-to writes this as a periodic task, which cron's minutes would make coarser.
        while True:
            await asyncio.sleep(RETRY_EACH_S)
            for job in await self.app.job_manager.get_stalled_jobs(seconds_since_heartbeat=lease_s):
                await self.app.job_manager.retry_job(job)


if __name__ == "__main__":
    main(Procrastinate)
