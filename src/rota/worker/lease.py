"""Keeps the leases of running jobs, and the worker's own sign of life, from a thread of its own: a handler that blocks the loop loses nothing."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.events import Bus
    from rota.store.link import Link
    from rota.store.ops import Claimant
    from rota.worker.held import Held, HeldJobs

RENEWALS_A_LEASE = 3
"""A lease is renewed when a third of it has gone: two renewals may fail before it is lost."""
ANSWER_S = (1.0, 10.0)
"""The least and the most that a renewal may take; in between a quarter of the shortest lease. A connection that does not answer is replaced while
there is lease left for another try."""
BEAT_S = 15.0
"""How often a worker says that it is alive."""


class LeaseKeeper(Service):
    """One statement renews all leases that are due for it. Runs on its own loop; touches nothing of the worker's but through `on_lost`
    and `on_beat`, which hears how many workers are alive."""

    name = "lease keeper"

    def __init__(
        self,
        bus: Bus,
        link: Link,
        held: HeldJobs,
        who: Claimant,
        sign: dict[str, Any],
        on_lost: Callable[[list[Held]], None],
        on_beat: Callable[[int], None],
    ) -> None:
        super().__init__(bus)
        self._link = link
        self._held = held
        self._who = who
        self._sign = sign
        self._on_lost = on_lost
        self._on_beat = on_beat
        self._shortest_s = min(lease.total_seconds() for lease in who.leases)
        self._beat_at = 0.0
        # Whoever comes back after an outage must have renewed before the reaper may take the job: that is half a lease after the server's start.
        self.back_off_most_s = min(self.back_off_most_s, self._shortest_s / (4 * RENEWALS_A_LEASE))

    async def tick(self) -> float | None:
        """Renew what is due, beat when it is time; look again in a twelfth of the shortest lease."""
        now = monotonic()
        running = [held for held in self._copy() if held.started_at is not None]
        due = [held for held in running if now - held.renewed_at >= held.lease_s / RENEWALS_A_LEASE]
        if due:
            renewed = await self._link.run(ops.renew([(held.job.id, held.job.claims) for held in due], self._who))
            lost = []
            for held in due:
                if held.job.id in renewed.held:
                    held.renewed_at = now
                elif held.end is None and self._held.get(held.job.id) is held:
                    lost.append(held)
            if lost:
                self._on_lost(lost)
        if now >= self._beat_at:
            self._on_beat(await self._link.run(ops.beat({**self._sign, "running": len(running)})))
            self._beat_at = now + BEAT_S
        return min(self._shortest_s / (4 * RENEWALS_A_LEASE), BEAT_S)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _copy(self) -> list[Held]:
        return list(self._held.values())  # atomic under the GIL; the worker's loop goes on meanwhile
