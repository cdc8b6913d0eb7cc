"""Makes the days to come ready, and forgets what has been over for long enough, without anybody waiting for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.events import DeadPutAway, PartitionDropped, PartitionKept
from rota.service import Service
from rota.store import ops
from rota.store.link import Link

if TYPE_CHECKING:
    from rota.events import Bus
    from rota.store.db import Database
    from rota.store.ops import PartitionStep

PERIOD_S = 3600.0
SOON_S = 0.1
"""The pause when there was more to forget than one pass takes."""
STEP_S = 2
"""The longest that detaching or dropping a partition may take. Whoever must attach one waits behind it: nobody else does."""
STEP_MARGIN_S = 0.5
"""Then the client ends the step: a transaction pooler lets no server do it."""
BATCH = 1_000
"""Rows of one statement."""


class Retention(Service):
    """One pass makes the partitions that are missing, then takes off and drops what is too old, at most one of a table, then forgets rows."""

    name = "retention"

    def __init__(self, bus: Bus, link: Link, database: Database) -> None:
        super().__init__(bus)
        self._link = link
        self._own = Link(database, "retention", statement_timeout_s=STEP_S, lock_timeout_s=STEP_S)

    async def tick(self) -> float | None:
        """Do one pass; return soon when there was more than it takes."""
        await self._link.run(ops.ensure_partitions())  # first, for the next step may be in the way of it
        dropped = await self._drop()
        return SOON_S if await self._forget() or dropped else PERIOD_S

    async def close(self) -> None:
        """Close its own connection; the other one is shared."""
        await self._own.close()

    async def _drop(self) -> bool:
        due = await self._link.run(ops.partitions_due())
        if not due:
            return False
        try:
            for step in due:
                if step.step == "detach":
                    await self._take(step)
            off = [step for step in await self._link.run(ops.partitions_due()) if step.step == "drop"]
            return any([await self._take(step) for step in off])
        finally:
            await self._own.close()  # it is needed once a day

    async def _take(self, step: PartitionStep) -> bool:
        try:
            async with asyncio.timeout(STEP_S + STEP_MARGIN_S):
                reason = await self._own.run(ops.take_step(step))
        except TimeoutError:
            reason = f"not within {STEP_S} s"
        if reason is not None:
            self.bus.emit(PartitionKept(partition=step.name, reason=reason))
        elif step.step == "drop":
            self.bus.emit(PartitionDropped(partition=step.name))
        return reason is None

    async def _forget(self) -> bool:
        """Forget a batch of each kind of rows; return whether there may be more."""
        dead = await self._link.run(ops.put_dead_away(BATCH))
        if dead:
            self.bus.emit(DeadPutAway(jobs=dead))
        keys = await self._link.run(ops.expire_keys(BATCH))
        workers = await self._link.run(ops.forget_workers(BATCH))
        return BATCH in (dead, keys, workers)
