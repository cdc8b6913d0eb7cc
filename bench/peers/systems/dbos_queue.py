"""DBOS, workflows on a queue of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from bench.peers.harness import KINDS, WORKER, Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, DEFAULTS = "one at a time", "defaults"
SLOTS = 100
QUEUE = "default"
SYSTEM = System(
    name="DBOS",
    module="dbos_queue",
    package="dbos",
    packages=("dbos>=3.4,<4",),
    setups=(
        Setup(
            name=LEAD,
            about="async workflows, worker_concurrency=100, polling_interval_sec=0.05, a pool of "
            "20",
            history="kept",
            is_lead=True,
        ),
        Setup(
            name=DEFAULTS,
            about="async workflows, register_queue(name)",
            history="kept",
            is_default=True,
        ),
    ),
    left="select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', "
    "'DELAYED')",
    copied=(
        Rows("dbos.workflow_status", {"workflow_uuid": "'job ' || copy"}),
        Rows("dbos.workflow_input", {"workflow_uuid": "'job ' || copy"}),
    ),
    durable="each commit",
    recovery="a process that starts with the executor_id of a dead one takes its workflows: the "
    "killed worker is started again",
    default_recovery="when a process with its executor_id starts; for others by Conductor, a "
    "service of its makers",
    why_held="only a process with the executor_id of the one that stands still takes its workflows "
    "(its guide on workflow recovery)",
    starts_again=True,
)


class Dbos(Harness):
    """One worker process; jobs are enqueued by DBOS's client."""

    system = SYSTEM

    def _launch(self, slots: int | None) -> None:
        dbos = library("dbos").DBOS
        config: dict[str, Any] = {
            "name": "bench",
            "system_database_url": self.url,
            "executor_id": os.environ.get(WORKER, "a"),
            "application_version": "1",
            "log_level": "ERROR",
        }
        options: dict[str, Any] = {"worker_concurrency": slots}
        if self.setup.name == LEAD:
            config["sys_db_pool_size"] = 20
            options = {"worker_concurrency": slots or SLOTS, "polling_interval_sec": 0.05}
        dbos(config=config)
        for kind in KINDS:
            dbos.workflow(name=kind)(self._handler(kind))
        dbos.launch()
        dbos.register_queue(QUEUE, **options)

    def _handler(self, kind: Kind) -> Any:
        async def handle(n: int) -> None:
            await self.handle(kind, n)

        handle.__qualname__ = kind
        return handle

    async def prepare(self) -> None:
        await asyncio.to_thread(self._launch, None)
        await asyncio.to_thread(library("dbos").DBOS.destroy)

    async def open(self) -> None:
        self._client = library("dbos").DBOSClient(system_database_url=self.url)
        url = self.url.replace("postgresql://", "postgresql+psycopg://")
        self._engine = library("sqlalchemy").create_engine(url)

    async def close(self) -> None:
        self._client.destroy()
        self._engine.dispose()

    async def one(self, kind: Kind, n: int) -> None:
        await self._client.enqueue_async({"queue_name": QUEUE, "workflow_name": kind}, n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        with self._engine.begin() as connection:
            for n in numbers:
                options = {"queue_name": QUEUE, "workflow_name": kind}
                self._client.enqueue_in_transaction(connection, options, n)

    async def in_transaction(self, n: int) -> None:
        text = library("sqlalchemy").text("insert into application (n) values (:n)")
        with self._engine.begin() as connection:
            connection.execute(text, {"n": n})
            options = {"queue_name": QUEUE, "workflow_name": "noop"}
            self._client.enqueue_in_transaction(connection, options, n)

    def work(self, slots: int | None) -> None:
        self._launch(slots)
        threading.Event().wait()


if __name__ == "__main__":
    main(Dbos)
