"""Creates the coming partitions, removes old partitions and deletes old rows, without blocking."""

from __future__ import annotations

import asyncio
from functools import partial

from rota.errors import DatabaseUnavailable
from rota.model.bounds import KEYS_READ
from rota.observe import events
from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.store.ops import PartitionStep
from rota.upkeep.quarantine import RefusalLog

PERIOD_S = 3600.0
SOON_S = 0.1
"""The pause after a pass that left something to delete."""
STEP_S = 2
"""Longest time to detach or drop a partition, in seconds. Only a session that attaches one
waits."""
STEP_MARGIN_S = 0.5
"""Seconds after which the client ends the step: behind a transaction pooler the server cannot."""
REMOVALS = {"drop": events.PartitionDropped, "archive": events.PartitionArchived}
"""The steps that remove a detached partition, with their events. A newer schema may have others."""
PORTION = 1_000


class Retention(Service):
    """A pass creates missing partitions, removes one old partition per table, and deletes rows."""

    name = "retention"

    def __init__(
        self, bus: Bus, link: StoreLink, database: Database, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(bus, clock)
        self._link = link
        self._refused = RefusalLog(bus, self.name, clock)
        self._own = StoreLink(
            database, "retention", statement_timeout_s=STEP_S, lock_timeout_s=STEP_S
        )
        """For statements that may wait for a lock: the other connection is shared."""
        self._pass_at = 0.0
        """No pass before this time: the pass before the jobs left nothing."""
        self._partitions_at = 0.0
        """No change of partitions before this time, while rows are deleted portion by portion."""

    async def begin(self, link: StoreLink) -> None:
        """Do the pass of a drain, before its jobs. The first `tick` retries steps that wait."""
        has_waiting, has_more = await self._update_partitions(link, reports=False)
        if not await self._forget(link) and not has_waiting and not has_more:
            self._pass_at = self.clock.monotonic() + PERIOD_S

    async def tick(self) -> float | None:
        """Do one pass; return a short pause if there is more to do."""
        if self.clock.monotonic() < self._pass_at:
            return self._pass_at - self.clock.monotonic()
        refusal: DatabaseUnavailable | None = None
        if self.clock.monotonic() >= self._partitions_at:
            try:
                has_waiting, has_more = await self._update_partitions(self._own, reports=True)
                if has_more and not has_waiting:
                    return SOON_S
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                refusal = error
            finally:
                await self._own.close()  # needed once an hour only
            self._partitions_at = self.clock.monotonic() + PERIOD_S
        if await self._forget(self._link):
            return SOON_S
        self._partitions_at = 0.0
        if refusal is not None:
            raise refusal
        return PERIOD_S

    async def close(self) -> None:
        """Close its own connection; the other connection is shared."""
        await self._own.close()

    async def _update_partitions(self, own: StoreLink, *, reports: bool) -> tuple[bool, bool]:
        """Create missing partitions, and drop or archive old partitions. Return whether a partition
        must stay for now, and whether more may be removed at once. A partition that must stay is
        tried again in the next period only: each try may wait and is reported."""
        await own.run(ops.ensure_partitions())  # first, because the next step may block it
        due = await own.run(ops.partitions_due())
        taken = [
            await self._take(own, step, reports=reports) for step in due if step.step == "detach"
        ]
        left = await own.run(ops.partitions_due()) if due else []
        off = [step for step in left if step.step in REMOVALS]
        taken += [await self._take(own, step, reports=reports) for step in off]
        return not all(taken), bool(off)

    async def _take(self, own: StoreLink, step: PartitionStep, *, reports: bool) -> bool:
        try:
            async with asyncio.timeout(STEP_S + STEP_MARGIN_S):
                reason = await own.run(ops.take_step(step))
        except TimeoutError:
            reason = f"it did not end within {STEP_S} s"
        if reason is not None and reports:
            self.bus.emit(events.PartitionKept(partition=step.name, reason=reason))
        elif reason is None and step.step in REMOVALS:
            self.bus.emit(REMOVALS[step.step](partition=step.name))
        return reason is None

    async def _forget(self, link: StoreLink) -> bool:
        """Delete a portion of each kind of rows, even if one fails; return if more may be left."""
        more = False
        refusal: DatabaseUnavailable | None = None
        forgets = [
            partial(self._archive_dead, link),
            partial(self._erase_ended, link),
            partial(self._free_keys, link),
            *(partial(link.run, ops.forget_rows(what, PORTION)) for what in ops.FORGOTTEN),
        ]
        for forget in forgets:
            try:
                more |= await forget() >= PORTION
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                refusal = error
        if refusal is not None and not more:
            raise refusal
        return more

    async def _free_keys(self, link: StoreLink) -> int:
        """Free keys of deleted jobs: one statement for each pass, which never leaves more."""
        freed = await link.run(ops.free_keys(KEYS_READ))
        if freed:
            self.bus.emit(events.KeysFreed(keys=freed))
        return 0

    async def _archive_dead(self, link: StoreLink) -> int:
        dead, refusals = await link.run(ops.archive_dead(PORTION))
        self._refused.report(refusals)
        if dead:
            self.bus.emit(events.DeadArchived(jobs=dead))
        return dead + len(refusals) if dead else 0

    async def _erase_ended(self, link: StoreLink) -> int:
        erased, refusals = await link.run(ops.erase_ended(PORTION))
        self._refused.report(refusals)
        return erased + len(refusals) if erased else 0
