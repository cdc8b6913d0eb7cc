"""Rate limits: what workers reserve, and what people read, take and set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rota.errors import LimitNotFound, UsageError
from rota.model.record import Record
from rota.store.driver import Operation, Query, Row
from rota.store.errors import INVALID_PARAMETER, RowRefused

NO_DATA_FOUND = "P0002"
LimitPlace = tuple[str, str]
"""The name and the key of a limit; a limit without keys has the key ''."""


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A claimed job that wants to start."""

    job: int
    place: LimitPlace
    cost: int
    priority: int
    most_s: float | None = None
    """The longest that its worker can hold it; None: as long as reservations reach."""
    least_s: float = 0.0
    """The earliest that it can start."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The slot of a job, in seconds from the time of the statement."""

    wait_s: float
    late_s: float
    """How much later it may start."""
    from_at: datetime
    to_at: datetime
    """What the reservation made of the key's clock; to return it."""
    stamp: str
    """What it rests on: figures, and how often the clock was moved by hand."""


@dataclass(frozen=True, slots=True)
class NoSlot:
    """A job that gets none."""

    back_s: float | None
    """The seconds after which it is to come again; None: see `refusal`."""
    refusal: str | None = None
    """`unknown`: there is no such limit; `cost`: it costs more than the burst; `locked`: another
    transaction has locked the key."""


class LimitRecord(Record, frozen=True):
    """A rate limit: a row of the view `limits`."""

    name: str
    """Name of the rate limit."""
    starts: int
    """At most so many in any window of `per_s`."""
    per_s: float
    """The length of the window in seconds."""
    burst: int
    """At most so many at once."""
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

    A worker's start changes no limit while a newer release is at work.
    """
    if limits != "[]":
        params = {"limits": limits, "release": release, "is_deploy": is_deploy}
        yield Query("limits_declare", params)


def reserve_starts(
    requests: Sequence[StartRequest],
) -> Operation[dict[int, Reservation | NoSlot]]:
    """Reserve a slot for each job, or say when it is to come again."""
    rows = yield Query(
        "limit_reserve",
        {
            "jobs": [one.job for one in requests],
            "names": [one.place[0] for one in requests],
            "keys": [one.place[1] for one in requests],
            "costs": [one.cost for one in requests],
            "priorities": [one.priority for one in requests],
            "most_s": [one.most_s for one in requests],
            "least_s": [one.least_s for one in requests],
        },
    )
    return {row[0]: _read_answer(row) for row in rows}


def return_starts(unused: Sequence[tuple[LimitPlace, Reservation]]) -> Operation[int]:
    """Return reservations whose jobs did not start; return how many could be."""
    rows = yield Query(
        "limit_return",
        {
            "names": [name for (name, _), _ in unused],
            "keys": [key for (_, key), _ in unused],
            "from_at": [one.from_at for _, one in unused],
            "to_at": [one.to_at for _, one in unused],
        },
    )
    return rows[0][0]  # type: ignore[no-any-return]


def delay_limit(place: LimitPlace, for_s: float) -> Operation[None]:
    """Give no start of a key before this time has passed."""
    name, key = place
    asked = {"name": name, "key": key or None, "for": timedelta(seconds=for_s)}
    yield Query("limit_delay", asked)


def read_stamps(places: Sequence[LimitPlace]) -> Operation[dict[LimitPlace, str | None]]:
    """Return what reservations of these keys rest on now."""
    asked = {"names": [name for name, _ in places], "keys": [key for _, key in places]}
    return {(row[0], row[1]): row[2] for row in (yield Query("limit_stamps", asked))}


def replan_limits(most: int, after: str | None) -> Operation[tuple[int, str | None]]:
    """Bring jobs forward that wait for limits with free slots, at most `most` of each key, of a
    thousand keys behind `after`; return for how many keys jobs wait, and the last of them if there
    may be more."""
    asked = {"name": None, "most": most, "after": after}
    keys, _, next_after = (yield Query("limits_replan", asked))[0]
    return keys, next_after


def take_starts(name: str, key: str | None, count: int) -> Operation[bool]:
    """Take starts of a limit now; return whether they were free. Raises LimitNotFound, and
    UsageError for a wrong key or count."""
    rows = yield from _ask("limit_take", name, key=key, n=count)
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


def list_limits(name: str | None = None) -> Operation[list[LimitRecord]]:
    return [LimitRecord(*row) for row in (yield Query("limits_list", {"name": name}))]


def _read_answer(row: Row) -> Reservation | NoSlot:
    _, wait_s, late_s, from_at, to_at, stamp, back_s, refusal = row
    if wait_s is not None:
        return Reservation(wait_s, late_s, from_at, to_at, stamp)
    return NoSlot(back_s, refusal)


def _ask(query: str, name: str, **params: Any) -> Operation[list[Row]]:
    try:
        return (yield Query(query, {"name": name, **params}))
    except RowRefused as error:
        if error.sqlstate == NO_DATA_FOUND:
            raise LimitNotFound(name) from None
        if error.sqlstate == INVALID_PARAMETER:
            raise UsageError(error.first_line) from None
        raise
