"""A lease keeper turned by hand, on the test's own loop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import rota
from rota.declare.context import Context
from rota.observe.events import Bus
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.held import Held
from rota.worker.lease import LeaseKeeper
from tests.store.work import Hand, insert
from tests.worker.table import Connection

SIGN = {
    "name": "hand",
    "host": "h",
    "pid": 1,
    "version": "1",
    "release": "1",
    "job_types": ["t"],
    "queues": "{}",
    "slots": 1,
}


class KeptByHand:
    """One claimed job with a lease of two minutes, which the keeper does not know before `hold` is called."""

    def __init__(self, database: str, connection: Connection) -> None:
        claimant = Hand(connection, lease=timedelta(minutes=2))
        insert(connection)
        [self.job] = claimant.claim().jobs
        self.cancelled: list[tuple[int, str | None]] = []
        self.held: dict[int, Held] = {}
        silent: dict[str, Any] = {
            "on_lost": lambda _: None,
            "on_beat": lambda _: None,
            "on_cancel": self._hear,
        }
        silent["counted"] = lambda: dict.fromkeys(ops.COUNTS, 0)
        link, loop = StoreLink(Database(database), "lease"), asyncio.get_running_loop()
        self.keeper = LeaseKeeper(Bus(), link, loop, self.held, claimant.who, SIGN, **silent)

    def hold(self) -> Context:
        """The answer of the claim has come, and the job runs."""
        held = self.held[self.job.id] = Held(
            self.job, rota.Jobs().job("t")(_nothing), time.monotonic(), 120.0
        )
        held.started_at, held.admitted = time.monotonic(), True
        held.context = Context(self.job, "hand", None, self.keeper.report)
        return held.context

    async def hurry(self) -> float | None:
        """The bell rings, and the keeper takes its turn."""
        self.keeper.hurry()
        await asyncio.sleep(0)
        return await self.keeper.tick()

    def _hear(self, held: Held, why: str | None) -> None:
        self.cancelled.append((held.job.id, why))


def _nothing() -> None: ...
