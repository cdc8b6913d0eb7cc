"""Rate limits: what workers declare, and what people read, take and set."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.errors import LimitNotFound, UsageError
from rota.model.record import Record
from rota.store.driver import Operation, Query, Row
from rota.store.errors import INVALID_PARAMETER, RowRefused

NO_DATA_FOUND = "P0002"


class LimitRecord(Record, frozen=True):
    """A rate limit: a row of the view `limits`."""

    name: str
    """Name of the rate limit."""
    starts: int
    """How many jobs may start in any window of `per_s`."""
    per_s: float
    """The length of the window in seconds."""
    burst: int
    """How many jobs may start at once."""
    keyed: bool | None
    """Whether it is kept for each key; None: no code declares it."""
    changed_at: datetime
    """When it last changed, an aware datetime."""
    changed_by: str
    """Who changed it: the name that the caller gave, or else the role that logged in."""
    changed_why: str | None
    """The reason; None: none was given."""
    waiting_keys: int
    """How many of its keys these jobs have; 1 if it has no keys."""
    waiting: int
    """How many jobs were delayed for it, counted up to 10,000."""
    next_at: datetime | None
    """When the next start is free; None: now, or the limit has keys."""

    @property
    def per(self) -> timedelta:
        """The length of the window."""
        return timedelta(seconds=self.per_s)


def declare_limits(limits: str, release: str, *, is_deploy: bool) -> Operation[None]:
    """Declare rate limits, a JSON array of what `limits_declare` takes; with none it does nothing.
    A worker's start changes no limit while a newer release is at work."""
    if limits != "[]":
        params = {"limits": limits, "release": release, "is_deploy": is_deploy}
        yield Query("limits_declare", params)


def replan_limits(most: int, after: str | None) -> Operation[tuple[int, str | None]]:
    """Bring jobs forward that wait for limits with free slots, at most `most` of each key, of a
    thousand keys behind `after`; return for how many keys jobs wait, and the last key if there may
    be more."""
    asked = {"name": None, "most": most, "after": after}
    keys, _, next_after = (yield Query("limits_replan", asked))[0]
    return keys, next_after


def find_next_in_s(
    known: dict[str, list[int]], types: Sequence[str], at: datetime
) -> Operation[float | None]:
    """Return in how many seconds a job is due that was put off for a limit: of these queues and
    priorities, within ten seconds, and not due `at` this time yet."""
    branches = [(queue, priority) for queue, some in known.items() for priority in some]
    asked = {
        "queues": [queue for queue, _ in branches],
        "priorities": [priority for _, priority in branches],
        "types": list(types),
        "after": at,
    }
    return (yield Query("limit_next", asked))[0][0]  # type: ignore[no-any-return]


def take_starts(name: str, key: str | None, count: int) -> Operation[bool]:
    """Take starts of a limit now; return whether they were free. Raises LimitNotFound, and
    UsageError for a wrong key or count."""
    rows = yield from _ask("worker_limit_take", name, key=key, n=count)
    return rows[0][0]  # type: ignore[no-any-return]


def set_limit(
    name: str,
    starts: int | None,
    per_s: float | None,
    burst: int | None,
    why: str | None,
    by: str,
) -> Operation[None]:
    """Change a limit; None leaves a figure as it is. Raises LimitNotFound and UsageError."""
    per = None if per_s is None else timedelta(seconds=per_s)
    yield from _ask("limit_set", name, starts=starts, per=per, burst=burst, why=why, by=by)


def _ask(query: str, name: str, **params: Any) -> Operation[list[Row]]:
    try:
        return (yield Query(query, {"name": name, **params}))
    except RowRefused as error:
        if error.sqlstate == NO_DATA_FOUND:
            raise LimitNotFound(name) from None
        if error.sqlstate == INVALID_PARAMETER:
            raise UsageError(error.first_line) from None
        raise
