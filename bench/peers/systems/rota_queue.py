"""Rota."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from bench.peers.harness import Harness, Kind, library, main
from bench.peers.system import Rows, Setup, System

LEAD, BATCHED, FAILURES, DEFAULTS = (
    "one at a time",
    "100 jobs a call",
    "successes not kept",
    "defaults",
)
SYSTEM = System(
    name="Rota",
    module="rota_queue",
    needs_rota=True,
    setups=(
        Setup(name=LEAD, about="async handlers, concurrency=100", history="kept", is_lead=True),
        Setup(name=BATCHED, about="chunk=100, concurrency=100", history="kept"),
        Setup(name=FAILURES, about='history="failures", concurrency=100', history="failures only"),
        Setup(name=DEFAULTS, about="app.run()", history="kept", is_default=True),
    ),
    left="select count(*) from rota.job",
    copied=(Rows("rota.job", {"id": ""}),),
    durable="each commit",
    recovery="lease of 10 s, renewed by the worker",
    default_recovery="2 minutes: the lease",
)
SLOTS = 100


@dataclass(frozen=True, slots=True)
class Item:
    """The payload of a type that takes many jobs in a call."""

    n: int


class Rota(Harness):
    """One worker process, jobs of three types."""

    system = SYSTEM

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        logging.getLogger("rota").setLevel(logging.ERROR)
        self.app = library("rota").App(self.url, lease=f"{self.lease_s or 120:g}s")
        self.types: dict[Kind, Any] = {}
        if setup.name == BATCHED:
            self.types["noop"] = self.app.job("noop", chunk=100)(self._many)
        else:
            history = "failures" if setup.name == FAILURES else "all"
            self.types["noop"] = self.app.job("noop", history=history)(self._noop)
        self.types["stamp"] = self.app.job("stamp")(self._stamp)
        self.types["work"] = self.app.job("work")(self._work)

    async def _many(self, items: list[Item]) -> None:
        self.ledger.count(len(items))

    async def _noop(self, n: int) -> None:
        self.ledger.count()

    async def _stamp(self, n: int) -> None:
        self.ledger.stamp(n)

    async def _work(self, n: int) -> None:
        await self.ledger.work(n, self.seconds)

    async def prepare(self) -> None:
        self.app.migrate()
        self.app.sync()

    async def open(self) -> None:
        self._connection = library("psycopg").connect(self.url, autocommit=True)

    async def close(self) -> None:
        self._connection.close()
        self.app.close()

    async def one(self, kind: Kind, n: int) -> None:
        self.types[kind].enqueue(n=n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        new = self.types[kind].new
        self.app.enqueue_many([new(n=n) for n in numbers])

    async def in_transaction(self, n: int) -> None:
        with self._connection.transaction():
            self._connection.execute("insert into application (n) values (%s)", [n])
            self.types["noop"].using(connection=self._connection).enqueue(n=n)

    def work(self, slots: int | None) -> None:
        if slots is None and self.setup.name == DEFAULTS:
            self.app.run()
        else:
            self.app.run(concurrency=slots or SLOTS)


if __name__ == "__main__":
    main(Rota)
