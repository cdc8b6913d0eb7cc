"""Keeps the leases of running jobs, and the worker's own heartbeat, from a thread of its own: a
handler that blocks the worker's loop loses no lease."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from rota.declare.context import Context
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.parts import Parts

RENEWALS_A_LEASE = 3
"""A lease is renewed when a third of it has gone: two renewals may fail before it is lost."""
ANSWER_S = (1.0, 10.0)
"""The least and the most that a renewal may take; in between a quarter of the shortest lease. A
connection that does not answer is replaced while there is lease left for another try."""
HEARTBEAT_S = 15.0
"""Seconds between two heartbeats of a worker."""
PROGRESS_S = 1.0
"""Seconds between two writes of what handlers said of their progress, for all jobs together."""
CANCELS_S = 0.25
"""Seconds between two looks for cancelled jobs that a wake-up asks for: a thousand cancelled jobs
ask a thousand times."""


class LeaseKeeper(Service):
    """One statement renews all leases that are due for it, and learns which jobs are cancelled;
    another writes progress.

    It runs on a loop and thread of its own, and calls the other parts on the worker's loop.
    """

    name = "lease keeper"

    def __init__(self, parts: Parts, link: StoreLink, loop: AbstractEventLoop) -> None:
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._loop = loop
        """Its own, not the worker's."""
        self._who = parts.spec.make_claimant()
        self._description = parts.spec.describe()
        self._shortest_s = parts.spec.shortest_lease_s
        self._heartbeat_at = 0.0
        # The reaper waits half a lease after the server's start: before that, whoever comes back
        # after an outage must have renewed.
        most_s = self._shortest_s / (4 * RENEWALS_A_LEASE)
        self.back_off.most_s = min(self.back_off.most_s, most_s)
        self._looks_for_cancels = 0
        """How many renewals are for all jobs, due or not."""
        self._look_at = 0.0
        self._said: set[Context] = set()
        """Those that have said something since it was written. Handlers' threads add."""
        self._progress_at = 0.0

    def look_for_cancels(self) -> None:
        """Ask at once whether a job was cancelled. From any thread."""
        self._call(self._look_soon)

    def note_progress(self, context: Context) -> None:
        """Note that a handler has said how far it is. From any thread, as often as it likes: only
        the first since the last write wakes the loop."""
        if context not in self._said:
            self._said.add(context)
            self._call(self.wake)

    def _look_soon(self) -> None:
        # The second sees a job whose claim was not answered yet when the first asked.
        self._looks_for_cancels = 2
        self.wake()

    def _call(self, call: Callable[[], None]) -> None:
        # A closed loop: a thread that the worker had given up speaks after its end.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    async def tick(self) -> float | None:
        """Renew what is due, write progress, and give a heartbeat when it is time."""
        now = self.clock.monotonic()
        await self._renew(now)
        if self._said and now >= self._progress_at:
            self._progress_at = now + PROGRESS_S
            await self._write_progress()
        if now >= self._heartbeat_at:
            await self._give_heartbeat()
            self._heartbeat_at = now + HEARTBEAT_S
        return self._find_pause_s()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _find_pause_s(self) -> float:
        now = self.clock.monotonic()
        pause_s = min(self._shortest_s / (4 * RENEWALS_A_LEASE), HEARTBEAT_S)
        if self._looks_for_cancels:
            pause_s = min(pause_s, self._look_at - now)
        if self._said:
            pause_s = min(pause_s, self._progress_at - now)
        return max(pause_s, 0.0)

    async def _give_heartbeat(self) -> None:
        counts = self._parts.finisher.counts
        counted = {name: counts[name] for name in ops.COUNTS}
        running = sum(1 for attempt in self._copy() if attempt.began_at is not None)
        heartbeat = ops.write_heartbeat({**self._description, **counted, "running": running})
        self._parts.claimer.workers = await self._link.run(heartbeat)
        self._parts.health.note_answer()

    async def _renew(self, now: float) -> None:
        """Renew the leases that are due for it; on a look for cancels those of all jobs: one that
        still waits for its slot can be cancelled too."""
        looks = self._looks_for_cancels > 0 and now >= self._look_at
        if looks:
            self._looks_for_cancels -= 1
            self._look_at = now + CANCELS_S
        due = [attempt for attempt in self._copy() if looks or _is_due(attempt, now)]
        if not due:
            return
        claims = [(attempt.job.id, attempt.job.claims) for attempt in due]
        try:
            renewed = await self._link.run(ops.renew(claims, self._who))
        except DatabaseUnavailable:
            self._looks_for_cancels += looks
            raise
        for job, why in renewed.refused.items():
            reason = f"the lease of job {job} cannot be renewed: {why}"
            self.report_lost(reason, self._find_pause_s())
        for attempt in due:
            job = attempt.job.id
            if job not in renewed.held:
                self._lose(attempt)
                continue
            if job in renewed.renewed:
                attempt.renewed_at = now
            if job in renewed.cancels:
                self._parts.loop.call_soon_threadsafe(
                    self._parts.executor.cancel, attempt, renewed.cancels[job]
                )

    async def _write_progress(self) -> None:
        said = list(self._said)
        # Before it is read: what is said meanwhile is written next time.
        self._said.difference_update(said)
        attempts = self._parts.attempts
        speaking = [
            (attempt, context)
            for context in said
            if (attempt := attempts.get(context.job.id)) is not None and attempt.context is context
        ]
        if not speaking:
            return
        progress = [
            (one.job.id, one.job.claims, context.encode_progress()) for one, context in speaking
        ]
        try:
            written = await self._link.run(ops.progress(progress))
        except DatabaseUnavailable:
            self._said.update(said)
            raise
        for attempt, context in speaking:
            if attempt.job.id not in written:
                self._lose(attempt)
            elif not written[attempt.job.id]:
                self._said.add(context)

    def _lose(self, attempt: Attempt) -> None:
        if not attempt.is_over and self._parts.attempts.get(attempt.job.id) is attempt:
            self._parts.loop.call_soon_threadsafe(self._parts.executor.lose, attempt)

    def _copy(self) -> list[Attempt]:
        # Atomic under the GIL; the worker's loop goes on meanwhile.
        return list(self._parts.attempts.values())


def _is_due(attempt: Attempt, now: float) -> bool:
    return attempt.keeps_lease and now - attempt.renewed_at >= attempt.lease_s / RENEWALS_A_LEASE
