"""Keeps the leases of running jobs, and the worker's own sign of life, from a thread of its own: a handler that blocks the loop loses nothing."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.observe.events import DatabaseLost
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from rota.declare.context import Context
    from rota.observe.events import Bus
    from rota.store.link import StoreLink
    from rota.store.ops import Claimant
    from rota.worker.held import Held, HeldJobs

RENEWALS_A_LEASE = 3
"""A lease is renewed when a third of it has gone: two renewals may fail before it is lost."""
ANSWER_S = (1.0, 10.0)
"""The least and the most that a renewal may take; in between a quarter of the shortest lease. A connection that does not answer is replaced while
there is lease left for another try."""
BEAT_S = 15.0
"""How often a worker says that it is alive."""
PROGRESS_S = 1.0
"""What handlers say of their progress is written so often at most, for all jobs in one statement."""
HURRY_S = 0.25
"""Between two renewals that the bell asks for: a thousand cancelled jobs ring a thousand times."""


class LeaseKeeper(Service):
    """One statement renews all leases that are due for it, and learns which jobs somebody wants stopped; another writes progress. Runs on a loop of its
    own; touches nothing of the worker's but through `on_lost`, `on_cancel`, and `on_beat`, which hears how many workers are alive; `counted` is what the
    worker has counted so far."""

    name = "lease keeper"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        loop: AbstractEventLoop,
        held: HeldJobs,
        who: Claimant,
        sign: dict[str, Any],
        *,
        on_lost: Callable[[Held], None],
        on_cancel: Callable[[Held, str | None], None],
        on_beat: Callable[[int], None],
        counted: Callable[[], dict[str, int]],
    ) -> None:
        super().__init__(bus)
        self._link = link
        self._loop = loop
        self._held = held
        self._who = who
        self._sign = sign
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_beat = on_beat
        self._counted = counted
        self._shortest_s = min(lease.total_seconds() for lease in who.leases)
        self._beat_at = 0.0
        # Whoever comes back after an outage must have renewed before the reaper may take the job: that is half a lease after the server's start.
        self.back_off_most_s = min(self.back_off_most_s, self._shortest_s / (4 * RENEWALS_A_LEASE))
        self._hurries = 0
        self._hurry_at = 0.0
        self._said: set[Context] = set()
        """Those that have said something since it was written."""
        self._progress_at = 0.0

    def hurry(self) -> None:
        """A job of this worker was cancelled: ask now. From any thread."""
        self._call(self._hurry)

    def report(self, context: Context) -> None:
        """A handler has said how far it is. From any thread, as often as it likes: only the first since the last write wakes the loop."""
        if context not in self._said:
            self._said.add(context)
            self._call(self.wake)

    def _hurry(self) -> None:
        self._hurries = (
            2  # the second sees the job whose claim was not answered yet when the first asked
        )
        self.wake()

    def _call(self, call: Callable[[], None]) -> None:
        with suppress(
            RuntimeError
        ):  # the loop is closed: a thread that the worker had given up speaks after its end
            self._loop.call_soon_threadsafe(call)

    async def tick(self) -> float | None:
        """Renew what is due, write progress, beat when it is time; look again in a twelfth of the shortest lease."""
        now = monotonic()
        await self._renew(now)
        if self._said and now >= self._progress_at:
            self._progress_at = now + PROGRESS_S
            await self._write_progress()
        if now >= self._beat_at:
            running = sum(1 for held in self._copy() if held.started_at is not None)
            self._on_beat(
                await self._link.run(
                    ops.beat({**self._sign, **self._counted(), "running": running})
                )
            )
            self._beat_at = now + BEAT_S
        return self._pause_s()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _pause_s(self) -> float:
        pause_s = min(self._shortest_s / (4 * RENEWALS_A_LEASE), BEAT_S)
        if self._hurries:
            pause_s = min(pause_s, self._hurry_at - monotonic())
        if self._said:
            pause_s = min(pause_s, self._progress_at - monotonic())
        return max(pause_s, 0.0)

    async def _renew(self, now: float) -> None:
        """Renew the leases of running jobs that are due for it. In a hurry those of all jobs: one that still waits for its slot can be cancelled too."""
        hurried = self._hurries > 0 and now >= self._hurry_at
        if hurried:
            self._hurries -= 1
            self._hurry_at = now + HURRY_S
        due = [
            held
            for held in self._copy()
            if hurried
            or (held.admitted and now - held.renewed_at >= held.lease_s / RENEWALS_A_LEASE)
        ]
        if not due:
            return
        try:
            renewed = await self._link.run(
                ops.renew([(held.job.id, held.job.claims) for held in due], self._who)
            )
        except DatabaseUnavailable:
            self._hurries += hurried
            raise
        for job, why in renewed.refused.items():
            self._tell_once(
                DatabaseLost(
                    service=self.name,
                    reason=f"the lease of job {job} cannot be renewed: {why}",
                    retry_in_s=self._pause_s(),
                )
            )
        for held in due:
            if held.job.id not in renewed.held:
                self._lost(held)
                continue
            if held.job.id in renewed.renewed:
                held.renewed_at = now
            if held.job.id in renewed.cancels:
                self._on_cancel(held, renewed.cancels[held.job.id])

    async def _write_progress(self) -> None:
        said = list(self._said)
        self._said.difference_update(
            said
        )  # before it is read: what is said meanwhile is written next time
        telling = [
            (held, context)
            for context in said
            if (held := self._held.get(context.job.id)) is not None and held.context is context
        ]
        if not telling:
            return
        try:
            written = await self._link.run(
                ops.progress(
                    [
                        (held.job.id, held.job.claims, context.encode_progress())
                        for held, context in telling
                    ]
                )
            )
        except DatabaseUnavailable:
            self._said.update(said)
            raise
        for held, context in telling:
            if held.job.id not in written:
                self._lost(held)
            elif not written[held.job.id]:
                self._said.add(context)

    def _lost(self, held: Held) -> None:
        if held.end is None and self._held.get(held.job.id) is held:
            self._on_lost(held)

    def _copy(self) -> list[Held]:
        return list(
            self._held.values()
        )  # atomic under the GIL; the worker's loop goes on meanwhile
