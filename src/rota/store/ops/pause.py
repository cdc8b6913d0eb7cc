"""Pauses, and whether a database is a restored copy."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.model.record import Record
from rota.store.driver import Operation, Query


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


class Behind(msgspec.Struct, frozen=True):
    """A sequence behind its ids, which `resume_copy` moves."""

    sequence: str
    last_id: int
    highest_id: int


def copy_check() -> Operation[str | None]:
    """Return how a restored copy's recorded identity differs; None: this is no copy."""
    return (yield Query("copy_check"))[0][0]  # type: ignore[no-any-return]
