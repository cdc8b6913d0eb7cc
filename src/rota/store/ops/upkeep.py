"""Which parts of upkeep have something to do."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.driver import Operation, Query


class UpkeepDue(msgspec.Struct, frozen=True):
    """The answer to one question for all parts."""

    now: datetime
    due: list[str]
    """The names of those that have something to do."""
    time: float
    """The server's clock, in seconds: tests do not move it."""
    moved_s: float = 0.0
    """By how many seconds leases were moved along with it, in all."""
    tick_in_s: float | None = None
    """Seconds until the next tick of a schedule, if the scheduler was asked for; None: none is
    announced."""


_answer = msgspec.json.Decoder(UpkeepDue)


def find_upkeep_due(asked: str) -> Operation[UpkeepDue | None]:
    """Ask for the parts named in `asked`, a JSON object with the time from which on each reads;
    None: a table is locked."""
    [[answer]] = yield Query("upkeep_due", {"asked": asked})
    return None if answer is None else _answer.decode(answer)
