"""What people pause and resume, and whether a database is a restored copy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.errors import UsageError
from rota.model.record import Record
from rota.store.driver import Operation, Query, Row
from rota.store.errors import INVALID_PARAMETER, Unstorable


class Pause(Record, frozen=True):
    """A pause, and who asked for it."""

    queue: str | None
    """None: everything."""
    paused_at: datetime
    """Since when it is paused, an aware datetime."""
    paused_until: datetime | None
    """None: until it is resumed."""
    paused_by: str
    """Who paused it: the name that the caller gave, or else the role that logged in."""
    paused_why: str | None
    """The reason; None: none was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When something ends: at an instant, after seconds by the database's clock, or never."""

    at: datetime | None = None
    for_s: float | None = None


def pause_queue(queue: str, until: Until, why: str | None, by: str) -> Operation[Pause]:
    """Pause a queue. Raises UsageError if the instant has passed by the database's clock."""
    return (
        yield from _pause(
            "queue_pause_for",
            {"queue": queue, "until": until.at, "for_s": until.for_s, "why": why, "by": by},
        )
    )


def pause_all(until: Until, why: str | None, by: str) -> Operation[Pause]:
    """Pause everything. Raises UsageError if the instant has passed by the database's clock."""
    return (
        yield from _pause(
            "pause_all_for", {"until": until.at, "for_s": until.for_s, "why": why, "by": by}
        )
    )


def resume_queue(queue: str, why: str | None, by: str) -> Operation[bool]:
    rows = yield Query("queue_resume", {"queue": queue, "why": why, "by": by})
    return rows[0][0]  # type: ignore[no-any-return]


def resume_all(why: str | None, by: str) -> Operation[bool]:
    """End a pause of everything; return whether there was one."""
    return (yield Query("resume_all", {"why": why, "by": by}))[0][0]  # type: ignore[no-any-return]


def resume_copy(why: str | None, by: str) -> Operation[bool]:
    """Let a restored copy work; return whether it was one."""
    return (yield Query("resume_copy", {"why": why, "by": by}))[0][0]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Behind:
    sequence: str
    last_id: int
    highest_id: int


def ids_behind() -> Operation[list[Behind]]:
    """List the sequences that are behind their ids; `resume_copy` moves them."""
    return [Behind(*row) for row in (yield Query("ids_behind", {"limit": None}))]


def pauses() -> Operation[list[Pause]]:
    """List the pauses; a pause of everything comes first."""
    return [Pause(*row) for row in (yield Query("pauses"))]


def copy_check() -> Operation[str | None]:
    """Return how a restored copy's recorded identity differs; None: this is no copy."""
    return (yield Query("copy_check"))[0][0]  # type: ignore[no-any-return]


def _pause(name: str, params: dict[str, Any]) -> Operation[Pause]:
    try:
        rows: list[Row] = yield Query(name, params)
    except Unstorable as error:
        if error.sqlstate != INVALID_PARAMETER:
            raise
        raise UsageError(error.first_line) from None
    return Pause(*rows[0])
