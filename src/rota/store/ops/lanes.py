"""How free places of lanes and free slots of caps reach the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.job import Job
from rota.store.driver import Operation, Query

WAIT_MS = 500
"""How long a worker waits for other workers that decide about the same lanes."""


class RoomSweep(msgspec.Struct, frozen=True):
    """What one pass over the lanes and caps for which jobs wait found."""

    last_room: str | None
    """The next pass goes on behind it; None: this one came to the end."""
    rooms: int
    released: int


def free_places(jobs: Sequence[tuple[Job, str]]) -> Operation[None]:
    """Give away what these jobs left empty when they ended in transactions of their handlers'; each
    has the name of its type."""
    rooms = [room for job, name in jobs for room in (f"type {name}", f"queue {job.queue}")]
    rooms += [f"group {job.group_key}" for job, _ in jobs if job.group_key is not None]
    yield Query("rooms_advance", {"rooms": rooms, "wait_ms": WAIT_MS})


def sweep_rooms(after: str, limit: int, *, counts: bool = False) -> Operation[RoomSweep]:
    """Give free places that nobody gave: among `limit` lanes and caps behind `after`. `counts`: new
    caps count the jobs that began before them."""
    rows = yield Query("rooms_sweep", {"after": after, "limit": limit, "counts": counts})
    return RoomSweep(*rows[0])
