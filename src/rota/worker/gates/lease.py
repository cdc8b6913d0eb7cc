"""The gate for attempts that were not stopped and have enough of their lease left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.model.outcome import HandedBack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.model.outcome import End
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers


class LeaseGate:
    """A job begins only while at least a quarter of its lease is left: time to renew it twice."""

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """End those that were stopped while they waited, and hand back those with little lease."""
        answers: dict[Attempt, End] = {}
        for attempt in batch:
            if attempt.stop_outcome is not None:
                answers[attempt] = attempt.stop_outcome
            elif not attempt.has_lease_to_begin(now):
                answers[attempt] = HandedBack("its lease had less than a quarter left")
        return answers
