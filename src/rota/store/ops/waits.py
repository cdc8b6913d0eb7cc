"""Ordered groups and concurrency limits: what people read of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from rota.model.job import Job
from rota.model.record import Record
from rota.model.wait import Awaited, Holder, WaitFacts, explain_wait
from rota.store.driver import Operation, Query, Row


class GroupHolder(Record, frozen=True):
    """A job that holds a place of its group."""

    id: int
    """Id of the job."""
    job_type: str
    """Name of its type."""
    status: str
    """`running`; `failed` or `queued`, while it keeps its place for another attempt; `waiting` for
    a concurrency limit; `dead`, if it halts the group."""
    since: datetime
    """Since when it has this status."""


class Group(Record, frozen=True):
    """An ordered group with jobs that hold a place or wait for a place."""

    group_key: str
    """The key of the ordered group."""
    capacity: int
    """How many jobs may run at once when the next job begins."""
    held: int
    """How many jobs hold a place."""
    holders: list[GroupHolder]
    """The first hundred jobs that hold a place, by id."""
    waiting: int
    """How many jobs have no place, due or to come. A count of 10,000 means at least so many."""
    oldest_due: datetime | None
    """The earliest `run_at` of due jobs; None: no job is due."""
    halted_by: int | None
    """The dead job that halts the group, until you retry or archive it; None: no job does."""


class ConcurrencyLimit(Record, frozen=True):
    """How many jobs of a queue or of a job type may run at once, over all workers."""

    kind: Literal["queue", "type"]
    """Whether it limits a queue or a job type."""
    name: str
    """Name of the queue or of the job type."""
    max_running: int
    """How many jobs may run at once."""
    running: int
    """How many jobs run now and count."""
    blocked: int
    """How many jobs wait for a place. A count that reaches 10,000 means at least so many."""
    blocked_since: datetime | None
    """Since when the first of the waiting jobs waits; None: no job waits."""


def find_groups(
    group_key: str | None, *, halted: bool, after: str | None, limit: int
) -> Operation[list[Group]]:
    asked = {"group_key": group_key, "halted": halted, "after": after, "limit": limit}
    return [_make_group(row) for row in (yield Query("groups_list", asked))]


def _make_group(row: Row) -> Group:
    facts: dict[str, Any] = dict(zip(Group.__struct_fields__, row, strict=True))
    facts["holders"] = _holders.decode(facts["holders"])
    return Group(**facts)


_holders = msgspec.json.Decoder(list[GroupHolder])


def explain(jobs: Sequence[Job]) -> Operation[list[Job]]:
    live = [job.id for job in jobs if job.finished_at is None]
    rows = (yield Query("jobs_held", {"ids": live})) if live else ()
    facts = {row[0]: _make_facts(row) for row in rows}
    return [
        replace(job, wait=explain_wait(job, facts[job.id])) if job.id in facts else job
        for job in jobs
    ]


def _make_facts(row: Row) -> WaitFacts:
    id_, now, holds, held, holders, *others = row
    if others[-1] is not None:
        others[-1] = _awaited.decode(others[-1])
    found = tuple(holder for holder in _wait_holders.decode(holders) if holder.id != id_)[:3]
    return WaitFacts(now, holds, held, found, *others)


_awaited = msgspec.json.Decoder(Awaited)
_wait_holders = msgspec.json.Decoder(tuple[Holder, ...])
