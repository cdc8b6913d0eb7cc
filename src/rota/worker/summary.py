"""What a worker did."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.model.failure import one_line


class Summary(msgspec.Struct, frozen=True):
    """What a worker did, when it is over."""

    claimed: int
    succeeded: int
    failed: int
    dead: int
    oldest_due: datetime | None
    """When the oldest job that is still due was due; None when none is, or when the database could
    not be asked."""

    paused: list[str] = []
    """Those of its queues from which it took nothing at the end, because they were paused, in order."""

    def line(self) -> str:
        """The last line of a drain."""
        paused = f", paused: {', '.join(map(one_line, self.paused))}" if self.paused else ""
        oldest = (
            "none" if self.oldest_due is None else self.oldest_due.isoformat(timespec="seconds")
        )
        counts = f"claimed {self.claimed}, succeeded {self.succeeded}, failed {self.failed}"
        return f"{counts}, dead {self.dead}, oldest due: {oldest}{paused}"
