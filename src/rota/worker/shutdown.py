"""How a worker stops: it claims nothing more, finishes running jobs, hands back the rest and
records everything, in bounded time even without an answer of the database."""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from rota.errors import DatabaseUnavailable, RotaError
from rota.runtime.clock import Clock
from rota.runtime.service import LoopThread, Service, cancel
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.retention import Retention
from rota.worker.by_hand import Picker
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor
from rota.worker.finisher import Finisher
from rota.worker.lease_keeper import LeaseKeeper
from rota.worker.listener import Listener
from rota.worker.spec import WorkerSpec

Running = tuple[Service, asyncio.Task[None]]

RECORD_S = 10.0
"""How long a worker waits for the database once nothing runs: for its last claim, its outcomes, its
deregistration. Jobs with unwritten outcomes run again after their leases."""
LEAVE_S = 2.0
"""How long each of these steps may take once that time is over. So without answers the shutdown
takes at most 20 s longer than the grace period, as the docs tell service managers."""
RETENTION_S = 0.5
"""How long a done drain waits for its pass of retention, which may wait for a reader of history."""


class Parts(msgspec.Struct, frozen=True):
    """All parts live on the worker's loop. Only the lease keeper has its own loop and thread: it
    calls the others with `loop.call_soon_threadsafe`."""

    finisher: Finisher
    executor: Executor
    claimer: Claimer | Picker
    lease_keeper: LeaseKeeper


class Shutdown:
    def __init__(self, spec: WorkerSpec, clock: Clock) -> None:
        self.asked = asyncio.Event()
        """Set when the worker is to stop."""
        self.asked_now = asyncio.Event()
        """Set when the grace period is over at once."""
        self.failure: RotaError | None = None
        """The error with which the worker ends; None: it succeeds."""
        self._spec = spec
        self._clock = clock
        self._until = clock.monotonic() + RECORD_S

    def fail(self, failure: RotaError) -> None:
        """Stop because of a failure; the first one counts."""
        if self.failure is None:
            self.failure = failure
            self.asked.set()

    async def finish(self, parts: Parts, running: list[Running], grace_s: float) -> None:
        """Claim nothing more, give running jobs the grace period, write all outcomes, and end the
        services. Raises the error of a service that failed."""
        parts.claimer.stop()
        await parts.executor.finish_running(grace_s, self.asked_now)
        self._until = self._clock.monotonic() + RECORD_S
        for service, task in running:
            if service is parts.claimer:
                await self._wait_for_the_last_claim(task)
        await parts.finisher.flush(self._left_s)
        await self._end(parts, running)

    async def leave(
        self, parts: Parts, running: list[Running], apart: list[Running], thread: LoopThread
    ) -> None:
        """End what still runs, however `finish` ended; `apart` are the services in the thread."""
        for _, task in running:
            task.cancel()  # still running only if `finish` was cancelled
        await parts.executor.stopper.cut_off()
        for service, _ in apart:
            thread.loop.call_soon_threadsafe(service.stop)
        await _wait_for_end([task for _, task in apart], LEAVE_S)

    async def deregister(self, parts: Parts, link: StoreLink) -> datetime | None:
        """Record that the worker has ended. In a drain, return when the oldest due job was due. A
        failure becomes the claimer's."""
        stopping = asyncio.create_task(self._deregister(parts, link))
        try:
            await asyncio.wait([stopping], timeout=self._left_s)
        finally:
            await cancel([stopping])
        try:
            return stopping.result()
        except asyncio.CancelledError:
            what = "it is unknown whether this worker was deregistered"
            failure = DatabaseUnavailable(f"the database does not answer: {what}")
        except DatabaseUnavailable as error:
            failure = error
        # A worker that recorded everything may go without deregistering.
        if self._spec.config.drain or not parts.finisher.is_empty:
            parts.claimer.failure = parts.claimer.failure or failure
        return None

    @property
    def _left_s(self) -> float:
        return max(LEAVE_S, self._until - self._clock.monotonic())

    async def _wait_for_the_last_claim(self, claiming: asyncio.Task[None]) -> None:
        """Wait for the last claim, whose jobs must be handed back; not if the worker stops now."""
        asked_now = asyncio.create_task(self.asked_now.wait())
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait([claiming, asked_now], timeout=self._left_s, return_when=first)
        finally:
            asked_now.cancel()

    async def _end(self, parts: Parts, running: list[Running]) -> None:
        for service, task in running:
            service.stop()
            if isinstance(service, Retention):
                timeout_s = RETENTION_S if self._spec.config.drain else 0
                await asyncio.wait([task], timeout=timeout_s)
                task.cancel()  # a later pass finishes it
            # The listener waits in the driver, the others for a database that does not answer.
            is_stuck = service is parts.finisher and not parts.finisher.is_empty
            if is_stuck or isinstance(service, Listener):
                task.cancel()
        await _wait_for_end([task for _, task in running], self._left_s)

    async def _deregister(self, parts: Parts, link: StoreLink) -> datetime | None:
        try:
            return await self._stop_and_ask(parts, link)
        except DatabaseUnavailable:
            # The connection may have broken long ago; this opens a new one.
            return await self._stop_and_ask(parts, link)

    async def _stop_and_ask(self, parts: Parts, link: StoreLink) -> datetime | None:
        await link.run(ops.stop(self._spec.name, parts.finisher.counts))
        found = await link.run(ops.oldest_due()) if self._spec.config.drain else None
        return found[0] if found else None


async def _wait_for_end(tasks: list[asyncio.Task[None]], within_s: float) -> None:
    """Wait for tasks, and cancel late tasks. Raises the error of a service that failed."""
    if not tasks:
        return
    ended, late = await asyncio.wait(tasks, timeout=within_s)
    await cancel(late)
    for task in ended:
        if not task.cancelled():
            task.result()
