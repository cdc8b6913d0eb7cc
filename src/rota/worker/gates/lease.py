"""Lets only those begin that nobody stopped, and of whose lease enough is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.model.outcome import HandedBack
from rota.worker.gates import ALL_MAY_BEGIN, Answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.worker.attempt import Attempt


class LeaseGate:
    """A job begins only while at least a quarter of its lease is left: time to renew it twice."""

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """End those that were stopped while they waited, and hand back those with little lease."""
        held = [
            attempt
            for attempt in batch
            if attempt.stop_outcome is not None or not attempt.has_lease_to_begin(now)
        ]
        if not held:
            return ALL_MAY_BEGIN
        late = HandedBack("its lease had less than a quarter left")
        return {attempt: attempt.stop_outcome or late for attempt in held}
