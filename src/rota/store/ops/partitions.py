"""The partitions of a day: made ahead, made when they are missing, and removed in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from rota.model.failure import one_line
from rota.store.driver import Operation, Query
from rota.store.errors import (
    ObjectMissing,
    PartitionMissing,
    PrivilegeMissing,
    RowLocked,
    RowRefused,
)

T = TypeVar("T")

PARTITION_DAYS = 7
"""Days for which partitions are made ahead: a running worker has six days to spare."""


def ensure_partitions(days: int = PARTITION_DAYS) -> Operation[int]:
    """Create the partitions of today and of these days ahead; return how many were created."""
    return (yield Query("partitions_ensure", {"days": days}))[0][0]  # type: ignore[no-any-return]


def retry_with_partitions(
    write: Callable[[], Operation[T]], *, tried: PartitionMissing | None = None
) -> Operation[T]:
    """Write; if the day's partition is missing, create it and write again. `tried`: the error of a
    first try; None: it was not tried yet."""
    if tried is None:
        try:
            return (yield from write())
        except PartitionMissing:
            pass
    yield from ensure_partitions()
    return (yield from write())


class PartitionStep(msgspec.Struct, frozen=True):
    step: str
    name: str
    command: str


_NOT_NOW = (
    "55000",  # another worker has half detached a partition of this table
    "2BP01",  # a view depends on it
    "42P07",  # the archive has a table of this name
)


def partitions_due() -> Operation[list[PartitionStep]]:
    """Return the steps that partitions need now, at most one detach per table."""
    return [PartitionStep(*row) for row in (yield Query("partitions_due"))]


def take_step(step: PartitionStep) -> Operation[str | None]:
    """Take the step; return why it must wait; None: done. A broken-off detach stays pending."""
    try:
        yield Query(step.step, command=step.command)
    except (RowLocked, ObjectMissing, PrivilegeMissing) as error:
        # A reader, a snapshot or another worker blocks it; another worker has done it; the role is
        # not the owner; or the archive is missing, or closed to the role.
        return one_line(str(error))
    except RowRefused as error:
        if error.sqlstate not in _NOT_NOW:
            raise
        return one_line(str(error))
    return None
