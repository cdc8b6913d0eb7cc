"""The result of a worker."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.model.failure import one_line
from rota.model.record import Record


class Summary(Record, frozen=True):
    """What a worker has done when it ends."""

    claimed: int
    succeeded: int
    failed: int
    dead: int
    oldest_due: datetime | None
    """When the oldest job that is still due was due. None if no job is due, or if the database did
    not answer."""

    paused: list[str] = msgspec.field(default_factory=list)
    """Its queues that were paused at the end, in order."""

    def line(self) -> str:
        """The last line of a drain."""
        paused = f", paused: {', '.join(map(one_line, self.paused))}" if self.paused else ""
        oldest = (
            "none" if self.oldest_due is None else self.oldest_due.isoformat(timespec="seconds")
        )
        counts = f"claimed {self.claimed}, succeeded {self.succeeded}, failed {self.failed}"
        return f"{counts}, dead {self.dead}, oldest due: {oldest}{paused}"
