"""How old rows and partitions are deleted in time."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.failure import one_line
from rota.store.driver import Operation, Query
from rota.store.errors import ObjectMissing, PrivilegeMissing, RowLocked, RowRefused
from rota.store.isolate import Refusals
from rota.store.ops.upkeep import take_batch


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """A partition to detach or to drop now."""

    step: str
    name: str
    command: str


_NOT_NOW = (
    "55000",  # another worker has half detached a partition of this table
    "2BP01",  # a view depends on it
)


def partitions_due() -> Operation[list[PartitionStep]]:
    """Return the steps that partitions need now, at most one detach per table."""
    return [PartitionStep(*row) for row in (yield Query("partitions_due"))]


def take_step(step: PartitionStep) -> Operation[str | None]:
    """Detach or drop a partition; return None when that is done, otherwise why it must wait.

    A detach that is interrupted stays pending.
    """
    try:
        yield Query(step.step, command=step.command)
    except (RowLocked, ObjectMissing, PrivilegeMissing) as error:
        # A reader, a snapshot or another worker blocks it; another worker has done it; or
        # the role is not the owner.
        return one_line(str(error))
    except RowRefused as error:
        if error.sqlstate not in _NOT_NOW:
            raise
        return one_line(str(error))
    return None


def archive_dead(limit: int) -> Operation[tuple[int, Refusals]]:
    """Archive jobs that have been dead for long enough; return how many, and those that were
    refused."""
    candidates = Query("jobs_long_dead", {"limit": limit})
    rows, refusals = yield from take_batch("dead_archive", {"limit": limit}, candidates)
    return sum(row[0] for row in rows), refusals


def expire_keys(limit: int) -> Operation[int]:
    """Delete keys that have expired; return how many."""
    return (yield Query("keys_expire", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class KeysRead:
    """How many keys of live jobs were read, and how many of them freed."""

    read: int
    freed: int
    last_job: int | None
    """The last job; None: there was none."""


def free_keys(after: int, limit: int) -> Operation[KeysRead]:
    """Free keys whose job was deleted by hand, among those of the jobs after this one."""
    rows = yield Query("keys_free", {"after": after, "limit": limit})
    return KeysRead(*rows[0])


def forget_workers(limit: int) -> Operation[int]:
    """Delete workers that have been gone for a day; return how many."""
    return (yield Query("workers_forget", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


def forget_actions(limit: int) -> Operation[int]:
    """Delete audit log entries that are older than the setting; return how many."""
    return (yield Query("actions_forget", {"limit": limit}))[0][0]  # type: ignore[no-any-return]
