"""awa, with its asynchronous client for Python."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library, main
from bench.peers.system import Setup, System

LEAD, DEFAULTS = "one at a time", "defaults"
SLOTS = 100
SYSTEM = System(
    name="awa",
    module="awa_queue",
    package="awa-pg",
    packages=("awa-pg>=0.6.9,<0.7", "psycopg[binary]>=3.2"),
    setups=(
        Setup(
            name=LEAD,
            about="100 workers on the queue, claimers 2, claim_batch_size 500, enqueue_many_copy",
            history="kept",
            is_lead=True,
        ),
        Setup(
            name=DEFAULTS,
            about='start([("default", 10)])',
            history="kept",
            is_default=True,
        ),
    ),
    left="select count(*) from awa.jobs where state not in ('completed', 'failed', 'cancelled')",
    durable="each commit",
    recovery="heartbeat each 2 s, stale after 10 s, rescued each 5 s by the leader, elected each "
    "second",
    default_recovery="90 seconds: heartbeat_staleness_ms, and the deadline of a job",
    why_held="the leader alone rescues (its ADR-003), and holds its lock while its connection is "
    "open; the worker that stands still is the leader",
)
LEASES = {
    "heartbeat_interval_ms": 2_000,
    "heartbeat_rescue_interval_ms": 5_000,
    "leader_election_interval_ms": 1_000,
}


@dataclass(frozen=True, slots=True)
class Noop:
    """A job that does nothing but count."""

    n: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """A job that says that it begins."""

    n: int


@dataclass(frozen=True, slots=True)
class Work:
    """A job that works for a while."""

    n: int


TYPES: dict[Kind, type] = {"noop": Noop, "stamp": Stamp, "work": Work}


class Awa(Harness):
    """One worker process."""

    system = SYSTEM

    def _make(self) -> Any:
        if self.setup.name == DEFAULTS:
            return library("awa").AsyncClient(self.url)
        return library("awa").AsyncClient(self.url, max_connections=20)

    async def prepare(self) -> None:
        async with self._make() as client:
            await client.migrate()
            await client.install_queue_storage()

    async def open(self) -> None:
        self._client = self._make()

    async def close(self) -> None:
        await self._client.close()

    async def one(self, kind: Kind, n: int) -> None:
        await self._client.insert(TYPES[kind](n))

    async def bulk(self, kind: Kind, numbers: range) -> None:
        await self._client.enqueue_many_copy([TYPES[kind](n) for n in numbers])

    async def in_transaction(self, n: int) -> None:
        async with await self._client.transaction() as transaction:
            await transaction.execute("insert into application (n) values ($1)", n)
            await transaction.insert(Noop(n))

    def work(self, slots: int | None) -> None:
        asyncio.run(self._work(slots))

    async def _work(self, slots: int | None) -> None:
        client = self._make()
        for kind in KINDS:
            client.task(TYPES[kind])(self._handler(kind))
        options: dict[str, Any] = {}
        if self.lease_s is not None:
            options = {**LEASES, "heartbeat_staleness_ms": int(1e3 * self.lease_s)}
        limit = slots or (10 if self.setup.name == DEFAULTS else SLOTS)
        queue: dict[str, Any] = {"name": "default", "max_workers": limit}
        if self.setup.name == LEAD:
            queue |= {"claimers": 2, "claim_batch_size": 500}
        await client.start([queue], **options)
        await asyncio.Event().wait()

    def _handler(self, kind: Kind) -> Any:
        async def handle(job: Any) -> None:
            await self.handle(kind, job.args.n)

        return handle


if __name__ == "__main__":
    main(Awa)
