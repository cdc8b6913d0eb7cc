"""How a worker goes: it claims nothing more, finishes what runs, hands back the rest and records everything, in bounded time however silent the
database is."""

from __future__ import annotations

import asyncio
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.runtime.service import cancel_all
from rota.store import ops
from rota.upkeep.retention import Retention
from rota.worker.listener import Listener
from rota.worker.starter import Starter

if TYPE_CHECKING:
    from rota.runtime.service import LoopThread, Service
    from rota.store.link import StoreLink
    from rota.worker.claimer import Claimer
    from rota.worker.executor import Executor
    from rota.worker.finisher import Finisher

    Running = tuple[Service, asyncio.Task[None]]

RECORD_S = 10.0
"""How long a worker waits, once nothing runs any more, for all that the database still has to answer: its last claim, what its jobs came to, its
goodbye. What it cannot write is lost to the lease, not for ever."""
LEAVE_S = 2.0
"""How long each of those steps may take even if that time is over. So where nothing answers any more, the way out is less than 20 seconds longer than
the grace period, which is what supervisors are asked for."""
RETENTION_S = 0.5
"""How long a drain that is done lets its pass of retention go on. With drains only, there is no other; and no drain waits for a reader of history."""


class Departure:
    """The way out of one worker, made when it begins."""

    def __init__(
        self,
        executor: Executor,
        finisher: Finisher,
        claimer: Claimer,
        hurried: asyncio.Event,
        *,
        is_drain: bool,
    ) -> None:
        self._executor = executor
        self._finisher = finisher
        self._claimer = claimer
        self._hurried = hurried
        self._is_drain = is_drain
        self._until = monotonic() + RECORD_S

    async def finish(self, parts: list[Running], grace_s: float) -> None:
        """Claim nothing more, let what runs go on for the grace period, write what all came to, end the parts.

        Raises what a part failed with on the way.
        """
        self._claimer.stop()
        await self._executor.finish_running(grace_s, self._hurried)
        self._until = monotonic() + RECORD_S
        for part, task in parts:
            if part is self._claimer:
                await self._wait_for_the_last_claim(task)
        await self._finisher.flush(self._left_s)
        await self._end(parts)

    async def leave(self, parts: list[Running], apart: list[Running], thread: LoopThread) -> None:
        """End what still runs, whatever came of `finish`; `apart` are the parts in the thread."""
        for _, task in parts:
            task.cancel()  # still running only when the way out was cancelled too
        await self._executor.cut_off()
        for part, _ in apart:
            thread.loop.call_soon_threadsafe(part.stop)
        await _ended([task for _, task in apart], LEAVE_S)

    async def last_word(self, upkeep: StoreLink, worker: str) -> datetime | None:
        """Say goodbye; in a drain, return when the oldest job that is still due was due. A failure becomes the claimer's."""
        speaking = asyncio.create_task(self._last_word(upkeep, worker))
        try:
            await asyncio.wait([speaking], timeout=self._left_s)
        finally:
            await cancel_all([speaking])
        try:
            return speaking.result()
        except asyncio.CancelledError:
            failure = DatabaseUnavailable(
                "the database does not answer: nothing came of the worker's last word to it"
            )
        except DatabaseUnavailable as error:
            failure = error
        if (
            self._is_drain or not self._finisher.is_empty
        ):  # a worker that recorded everything may go without saying goodbye
            self._claimer.failure = self._claimer.failure or failure
        return None

    @property
    def _left_s(self) -> float:
        return max(LEAVE_S, self._until - monotonic())

    async def _wait_for_the_last_claim(self, claiming: asyncio.Task[None]) -> None:
        """It brings jobs, which must go back; in a hurry their leases bring them back."""
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait(
                [claiming, hurried], timeout=self._left_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            hurried.cancel()

    async def _end(self, parts: list[Running]) -> None:
        for part, task in parts:
            part.stop()
            if part.name == Retention.name:
                await asyncio.wait([task], timeout=RETENTION_S if self._is_drain else 0)
                task.cancel()  # what it leaves half done a later pass finishes
            if part.name in (Listener.name, Starter.name) or (
                part is self._finisher and not self._finisher.is_empty
            ):
                task.cancel()  # the first waits in the driver for the next ring, the others for a database that does not come back
        await _ended([task for _, task in parts], self._left_s)

    async def _last_word(self, upkeep: StoreLink, worker: str) -> datetime | None:
        try:
            return await self._say(upkeep, worker)
        except DatabaseUnavailable:
            return await self._say(
                upkeep, worker
            )  # its connection may have broken long ago; this opens a new one

    async def _say(self, upkeep: StoreLink, worker: str) -> datetime | None:
        await upkeep.run(ops.stop(worker, self._finisher.counts))
        found = await upkeep.run(ops.oldest_due()) if self._is_drain else None
        return found[0] if found else None


async def _ended(tasks: list[asyncio.Task[None]], within_s: float) -> None:
    """Wait for their end, and cancel what is late. A part that failed on the way out says so."""
    if not tasks:
        return
    ended, late = await asyncio.wait(tasks, timeout=within_s)
    await cancel_all(late)
    for task in ended:
        if not task.cancelled():
            task.result()
