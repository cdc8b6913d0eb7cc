"""Which parts of maintenance have something to do."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.driver import Operation, Query


class UpkeepDue(msgspec.Struct, frozen=True):
    now: datetime
    due: list[str]
    """The names of the parts that have something to do."""
    time: float
    """The server's clock, in seconds: tests do not move it."""
    moved_s: float = 0.0
    """The sum of all moves of the leases along with the server's clock, in seconds."""
    tick_in_s: float | None = None
    """Seconds until the next tick of a schedule, if the scheduler asked; None: no tick."""
    reap_in_s: float | None = None
    """Seconds until the next lease ends, if the reaper asked; None: later, or one has ended."""


_answer = msgspec.json.Decoder(UpkeepDue)


def find_upkeep_due(asked: str) -> Operation[UpkeepDue | None]:
    """Ask for the parts in `asked`, JSON with where each reads from; None: a table is locked."""
    [[answer]] = yield Query("upkeep_due", {"asked": asked})
    return None if answer is None else _answer.decode(answer)
