"""The gate that lets suspects begin one after the other.

Suspects are jobs whose worker was lost with them. One of them may have killed it. So only that one
may be lost with the next worker, and not its neighbours.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from rota.worker.gates import ALL_MAY_BEGIN, Answers, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.worker.attempt import Attempt

SURVIVED_S = 1.0
"""A job lost once lets the next begin when it has run for this long: many long jobs that were lost
with a host must not wait for each other."""
SURVIVED_S_MAX = 60.0
"""The longest of these times: it is four times as long for each further loss of one of the two."""
TURN_S_MAX = 10.0
"""The longest delay of a suspect; other workers take some too."""
ASK_AGAIN_S = 0.1
"""Seconds between checks while a suspect that has a slot has not begun."""


class SuspectGate:
    """The gate. It knows the suspects that run in this worker, or have ended and are not
    written."""

    def __init__(self) -> None:
        self._running: set[Attempt] = set()
        self._begun = 0

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """Let a suspect begin beside others only if each of those has been running for a while."""
        suspects = [attempt for attempt in batch if attempt.is_suspect]
        if not suspects:
            return ALL_MAY_BEGIN
        for place, attempt in enumerate(suspects):
            until = max((_survives_at(one, attempt, now) for one in self._running), default=now)
            if until > now:
                return dict.fromkeys(suspects[place:], Wait(until))
            self._running.add(attempt)
            self._begun += 1
        return ALL_MAY_BEGIN

    def release(self, attempt: Attempt) -> None:
        """Note that the outcome of an attempt is written."""
        self._running.discard(attempt)

    def iterate_turns(self) -> Iterator[float]:
        """Yield the delays in seconds of suspects that are handed back, one after the other.

        They follow the rate at which suspects have begun lately. Without delays all of them would
        be claimed and handed back again and again, ahead of other jobs.
        """
        each_s, self._begun = 1 / max(1, self._begun), 0
        for place in count():
            yield min(SURVIVED_S + place * each_s, TURN_S_MAX)


def _survives_at(one: Attempt, other: Attempt, now: float) -> float:
    """Return when a suspect has run long enough for another to begin beside it."""
    if one.began_at is None:
        return now + ASK_AGAIN_S
    losses = max(one.job.losses, other.job.losses)
    return one.began_at + min(SURVIVED_S * 4.0 ** (losses - 1), SURVIVED_S_MAX)
