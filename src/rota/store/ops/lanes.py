"""How free places of lanes and free slots of caps reach the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.job import Job
from rota.store.driver import Operation, Query

WAIT_MS = 500
"""How long a worker waits for other workers that decide about the same lanes."""


class LaneSweep(msgspec.Struct, frozen=True):
    """What one pass over the lanes with waiting jobs found."""

    last_lane: str | None
    """The next pass goes on behind it; None: this one came to the end."""
    lanes: int
    promoted: int


class CapSweep(msgspec.Struct, frozen=True):
    """What one pass over the caps for which jobs wait found."""

    has_caps: bool
    """Whether there are caps at all."""
    caps: int
    released: int


def free_places(jobs: Sequence[tuple[Job, str]]) -> Operation[None]:
    """Give away what these jobs left empty when they ended in transactions of their handlers'; each
    has the name of its type."""
    lanes = [job.group_key for job, _ in jobs if job.group_key is not None]
    caps = [cap for job, name in jobs for cap in (f"type {name}", f"queue {job.queue}")]
    yield Query("places_free", {"lanes": lanes, "caps": caps, "wait_ms": WAIT_MS})


def sweep_lanes(after: str, limit: int) -> Operation[LaneSweep]:
    """Promote jobs in lanes whose free place nobody gave them: among `limit` lanes behind
    `after`."""
    rows = yield Query("lanes_sweep", {"after": after, "limit": limit})
    return LaneSweep(*rows[0])


def sweep_caps() -> Operation[CapSweep]:
    """Release jobs that wait for a cap with free slots that nobody gave them."""
    rows = yield Query("caps_sweep")
    return CapSweep(*rows[0])


def count_running() -> Operation[None]:
    """Let new caps count the jobs that began before them."""
    yield Query("caps_count")
