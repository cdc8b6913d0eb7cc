"""Renews leases and writes heartbeats in its own thread: a blocked worker loop loses no lease."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress

from rota.declare.context import Context
from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.by_hand import Picker
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor
from rota.worker.finisher import Finisher, write_progress
from rota.worker.health import HEARTBEAT_S, Health
from rota.worker.spec import WorkerSpec

RENEWALS_A_LEASE = 3
"""Renewals in the time of a lease: two renewals may fail before the lease is lost."""
ANSWER_S = (1.0, 10.0)
"""The shortest and the longest limit of a renewal; in between a quarter of the shortest lease. It
leaves time for another try on a new connection."""
PROGRESS_S = 1.0
"""Seconds between two writes of progress, for all jobs together."""
CANCELS_S = 0.25
"""Seconds between two checks for cancelled jobs: each cancelled job may send a wake-up."""


class LeaseKeeper(Service):
    """One statement renews all due leases and reads which jobs are cancelled; another writes
    progress. It runs on its own loop and thread, and calls the other parts on the worker's loop."""

    name = "lease keeper"

    def __init__(
        self,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        loop: AbstractEventLoop,
        executor: Executor,
        finisher: Finisher,
        claimer: Claimer | Picker,
        health: Health,
    ) -> None:
        """To be made on the worker's loop; `loop` is its own."""
        super().__init__(bus, clock)
        self._link = link
        self._loop = loop
        self._workers_loop = asyncio.get_running_loop()
        self._executor = executor
        self._finisher = finisher
        self._claimer = claimer
        self._health = health
        self._who = spec.make_claimant()
        self._description = spec.describe()
        self._shortest_s = spec.shortest_lease_s
        self._heartbeat_at = 0.0
        # The reaper waits half a lease after the server's start: leases must be renewed before
        # that.
        most_s = self._shortest_s / (4 * RENEWALS_A_LEASE)
        self.back_off.most_s = min(self.back_off.most_s, most_s)
        self._cancel_checks = 0
        """How many of the next renewals are for all jobs, due or not."""
        self._check_at = 0.0
        self._reported: dict[Context, None] = {}
        """Contexts with an unwritten progress report, in order. Handlers' threads add."""
        self._progress_at = 0.0

    def check_cancels(self) -> None:
        """Check soon whether a job was cancelled. From any thread."""
        self._call(self._check_cancels_soon)

    def note_progress(self, context: Context) -> None:
        """Note that a handler has reported progress. From any thread, as often as it likes: only
        the first report since the last write wakes the loop."""
        if context not in self._reported:
            self._reported[context] = None
            self._call(self.wake)

    def _check_cancels_soon(self) -> None:
        # The second check sees a job whose claim was unanswered at the first.
        self._cancel_checks = 2
        self.wake()

    def _call(self, call: Callable[[], None]) -> None:
        # The loop is closed if an abandoned thread calls after the worker's end.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    async def tick(self) -> float | None:
        now = self.clock.monotonic()
        await self._renew(now)
        if self._reported and now >= self._progress_at:
            self._progress_at = now + PROGRESS_S
            await self._write_progress()
        if now >= self._heartbeat_at:
            await self._write_heartbeat()
            self._heartbeat_at = now + HEARTBEAT_S
        return self._find_pause_s()

    async def close(self) -> None:
        await self._link.close()

    def _find_pause_s(self) -> float:
        now = self.clock.monotonic()
        pause_s = min(self._shortest_s / (4 * RENEWALS_A_LEASE), HEARTBEAT_S)
        if self._cancel_checks:
            pause_s = min(pause_s, self._check_at - now)
        if self._reported:
            pause_s = min(pause_s, self._progress_at - now)
        return max(pause_s, 0.0)

    async def _write_heartbeat(self) -> None:
        counts = self._finisher.counts
        counted = {name: counts[name] for name in ops.COUNTS}
        running = sum(1 for attempt in self._copy() if attempt.began_at is not None)
        now = {"running": running, "refused": self._health.find_refusals()}
        heartbeat = ops.write_heartbeat({**self._description, **counted, **now})
        self._claimer.workers = await self._link.run(heartbeat)
        self._health.note_answer()

    async def _renew(self, now: float) -> None:
        """Renew due leases; at a check for cancels all, even of jobs that wait for a slot."""
        checks_all = self._cancel_checks > 0 and now >= self._check_at
        if checks_all:
            self._cancel_checks -= 1
            self._check_at = now + CANCELS_S
        due = [attempt for attempt in self._copy() if checks_all or _is_due(attempt, now)]
        if not due:
            return
        claims = [(attempt.job.id, attempt.job.claims) for attempt in due]
        try:
            renewed = await self._link.run(ops.renew(claims, self._who))
        except DatabaseUnavailable:
            self._cancel_checks += checks_all
            raise
        for job, why in renewed.refused.items():
            reason = f"the lease of job {job} cannot be renewed: {why}"
            self.report_lost(reason, self._find_pause_s(), refused=True)
        for attempt in due:
            job = attempt.job.id
            if job not in renewed.held:
                self._lose(attempt)
                continue
            if job in renewed.renewed:
                attempt.renewed_after_at = now
            if job in renewed.cancels:
                self._workers_loop.call_soon_threadsafe(
                    self._executor.cancel, attempt, renewed.cancels[job]
                )

    async def _write_progress(self) -> None:
        reported = list(self._reported)
        # Before the progress is read: a report that comes meanwhile is written next time.
        for context in reported:
            del self._reported[context]
        attempts = self._executor.attempts
        current = [
            (attempt, context)
            for context in reported
            if (attempt := attempts.get(context.job.id)) is not None and attempt.context is context
        ]
        if not current:
            return
        for _, context in current:
            context._is_being_stored = True  # before its report is read: see the finisher
        try:
            written = await write_progress(self._link, current)
        except DatabaseUnavailable:
            self._reported.update(dict.fromkeys(reported))
            raise
        finally:
            for _, context in current:
                context._is_being_stored = False
        for attempt, context in current:
            if attempt.job.id not in written:
                self._lose(attempt)
            elif written[attempt.job.id] is False:
                self._reported[context] = None

    def _lose(self, attempt: Attempt) -> None:
        if not attempt.is_over and self._executor.attempts.get(attempt.job.id) is attempt:
            self._workers_loop.call_soon_threadsafe(self._executor.stopper.lose, attempt)

    def _copy(self) -> list[Attempt]:
        # Atomic under the GIL; the worker's loop goes on meanwhile.
        return list(self._executor.attempts.values())


def _is_due(attempt: Attempt, now: float) -> bool:
    return attempt.keeps_lease and now - attempt.renewed_at >= attempt.lease_s / RENEWALS_A_LEASE
