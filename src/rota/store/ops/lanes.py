"""How free places of lanes and concurrency limits reach the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.job import Job
from rota.store.driver import Operation, Query

WAIT_MS = 500
"""How long a worker waits for other workers that decide about the same lanes."""


class RoomSweep(msgspec.Struct, frozen=True):
    last_room: str | None
    """The next pass goes on behind it; None: this pass came to the end."""
    rooms: int
    released: int


def free_places(jobs: Sequence[tuple[Job, str]]) -> Operation[None]:
    """Give away the places of jobs that their handlers finished, each with its type's name."""
    rooms = [room for job, name in jobs for room in (f"type {name}", f"queue {job.queue}")]
    rooms += [f"group {job.group_key}" for job, _ in jobs if job.group_key is not None]
    yield Query("rooms_advance", {"rooms": rooms, "wait_ms": WAIT_MS})


def sweep_rooms(after: str, limit: int, *, counts: bool = False) -> Operation[RoomSweep]:
    """Give free places that nobody gave: among `limit` lanes and concurrency limits behind `after`.
    `counts`: new concurrency limits count the jobs that began before them."""
    rows = yield Query("rooms_sweep", {"after": after, "limit": limit, "counts": counts})
    return RoomSweep(*rows[0])
