"""How what is over is forgotten in time."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.failure import one_line
from rota.store.driver import Operation, Query
from rota.store.errors import ObjectMissing, PrivilegeMissing, RowLocked, RowRefused
from rota.store.isolate import Refusals
from rota.store.ops.upkeep import take_batch


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """What is to be done to one partition now: to detach or to drop it."""

    step: str
    name: str
    command: str


_NOT_NOW = (
    "55000",  # another worker has one of this table half off
    "2BP01",  # somebody has built a view on it
)


def partitions_due() -> Operation[list[PartitionStep]]:
    """Say what is to be done about partitions now, at most one of a table to detach."""
    return [PartitionStep(*row) for row in (yield Query("partitions_due"))]


def take_step(step: PartitionStep) -> Operation[str | None]:
    """Detach or drop a partition; return None when that is done, else why it has to wait. A detaching that is cut short stays pending."""
    try:
        yield Query(step.step, command=step.command)
    except (RowLocked, ObjectMissing, PrivilegeMissing) as error:
        # A reader, a snapshot or another worker is in the way; another worker has done it; or
        # the role is not the owner.
        return one_line(str(error))
    except RowRefused as error:
        if error.sqlstate not in _NOT_NOW:
            raise
        return one_line(str(error))
    return None


def archive_dead(limit: int) -> Operation[tuple[int, Refusals]]:
    """Move jobs that have been dead for long enough to history; return how many, and those that the database does not let go."""
    candidates = Query("jobs_long_dead", {"limit": limit})
    rows, refusals = yield from take_batch("dead_archive", {"limit": limit}, candidates)
    return sum(row[0] for row in rows), refusals


def expire_keys(limit: int) -> Operation[int]:
    """Forget keys whose time is over; return how many."""
    return (yield Query("keys_expire", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


def forget_workers(limit: int) -> Operation[int]:
    """Forget workers that have been gone for a day; return how many."""
    return (yield Query("workers_forget", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


def forget_actions(limit: int) -> Operation[int]:
    """Forget what people did so long ago that it is kept no longer; return how many."""
    return (yield Query("actions_forget", {"limit": limit}))[0][0]  # type: ignore[no-any-return]
