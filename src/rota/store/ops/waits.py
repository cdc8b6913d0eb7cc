"""Lanes and caps: what people read of them, and the cap that they set."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.model.record import Record
from rota.model.wait import Awaited, Holder, WaitFacts
from rota.store.driver import Operation, Query, Row


class LaneHolder(Record, frozen=True):
    """A job that holds a place of its lane."""

    id: int
    """Id of the job."""
    job_type: str
    """Name of its type."""
    status: str
    """`running`; `failed` or `queued`, while it keeps its place for another attempt; `waiting` for
    a cap; `dead`, if it halts the lane."""
    since: datetime
    """Since when it has this status."""


class Lane(Record, frozen=True):
    """A lane with jobs that hold a place or wait for one."""

    group_key: str
    """The key of the ordered group."""
    capacity: int
    """How many may run at once when the next one begins."""
    held: int
    """How many hold a place."""
    holders: list[LaneHolder]
    """The first hundred of them, by id."""
    waiting: int
    """How many have none yet, due or to come. A count that reaches 10,000 means at least so
    many."""
    oldest_due: datetime | None
    """The earliest `run_at` of those that are due; None: none is."""
    halted_by: int | None
    """The dead job that halts the lane, until you retry or archive it; None: none does."""


class Cap(Record, frozen=True):
    """How many jobs of a queue or of a job type may run at once, over all workers."""

    kind: Literal["queue", "type"]
    """Whether it limits a queue or a job type."""
    name: str
    """Name of the queue or of the job type."""
    most: int
    """How many may run at once."""
    running: int
    """How many run now and count."""
    parked: int
    """How many wait until one of them ends. A count that reaches 10,000 means at least so many."""
    parked_since: datetime | None
    """Since when the first of these waits; None: none does."""


def find_lanes(
    group_key: str | None, *, halted: bool, after: str | None, limit: int
) -> Operation[list[Lane]]:
    """Find lanes, by group key."""
    asked = {"group_key": group_key, "halted": halted, "after": after, "limit": limit}
    return [_make_lane(row) for row in (yield Query("lanes_list", asked))]


def _make_lane(row: Row) -> Lane:
    facts: dict[str, Any] = dict(zip(Lane.__struct_fields__, row, strict=True))
    facts["holders"] = _holders.decode(facts["holders"])
    return Lane(**facts)


_holders = msgspec.json.Decoder(list[LaneHolder])


def read_caps() -> Operation[list[Cap]]:
    """Read the caps of all queues and job types."""
    return [Cap(*row) for row in (yield Query("caps_list"))]


def read_wait(job: int) -> Operation[WaitFacts | None]:
    """Read what may hold a live job back; None: there is no such live job."""
    rows = yield Query("job_wait", {"id": job})
    if not rows:
        return None
    now, holds, held, holders, *others = rows[0]
    if others[-1] is not None:
        others[-1] = _awaited.decode(others[-1])
    return WaitFacts(now, holds, held, _wait_holders.decode(holders), *others)


_awaited = msgspec.json.Decoder(Awaited)
_wait_holders = msgspec.json.Decoder(tuple[Holder, ...])


def set_max_running(
    queue: str, max_running: int | None, why: str | None, by: str
) -> Operation[int | None]:
    """Set the cap of a queue; None: it has none. Return the one before."""
    asked = {"queue": queue, "max_running": max_running, "why": why, "by": by}
    return (yield Query("queue_set_max_running", asked))[0][0]  # type: ignore[no-any-return]
