"""The gate that lets suspects begin one after the other.

Suspects are jobs whose worker was lost with them. One of them may have killed it. So only that one
may be lost with the next worker, and not its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.model.outcome import HandedBack
from rota.worker.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.model.outcome import End
    from rota.runtime.clock import Clock
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers

SURVIVED_S = 1.0
"""A job lost once lets the next begin when it has run for this long: many long jobs that were lost
with a host must not wait for each other."""
SURVIVED_S_MAX = 60.0
"""The longest of these times: it is four times as long for each further loss of one of the two."""
WAITING_MAX = 1_000
"""Most suspects that wait for their turns in one worker; further ones are handed back."""
TURN_S_MAX = 10.0
"""The longest delay of a suspect; other workers take some too."""
ASK_AGAIN_S = 0.1
"""Seconds between checks while a suspect that may begin has not begun."""


class SuspectGate(Gate):
    """It knows the suspects that may begin or run in this worker, or have ended and are not
    written: until then one would be charged for a crash that the next one causes."""

    is_first = True

    def __init__(self, clock: Clock, wait_s: float) -> None:
        """Make one; who waits for longer than `wait_s` is handed back: other workers may have
        room."""
        self.again = set()
        self._clock = clock
        self._wait_s = wait_s
        self._let_in: set[Attempt] = set()
        self._waiting: dict[Attempt, float] = {}
        """Since when each waits for its turn."""
        self._begun = 0

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those that were lost with their worker."""
        return [attempt for attempt in claimed if attempt.is_suspect]

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Let a suspect begin beside others only if each of those has been running for a while."""
        now = self._clock.monotonic()
        answers: dict[Attempt, float | End] = {}
        until: float | None = None
        turns = 0
        each_s = 1 / max(1, self._begun)
        for attempt in batch:
            if attempt in self._let_in:
                continue
            if until is None:
                times = [_survives_at(one, attempt, now) for one in self._let_in]
                until = max(times, default=now)
            if until <= now:
                self._waiting.pop(attempt, None)
                self._let_in.add(attempt)
                self._begun += 1
                until = None
            elif self._may_wait(attempt, now):
                answers[attempt] = until
            else:
                # They come again at the pace at which suspects have begun lately. Without delays
                # they would be claimed and handed back again and again, ahead of other jobs.
                delay_s = min(SURVIVED_S + turns * each_s, TURN_S_MAX)
                answers[attempt] = HandedBack("it waited too long for its turn", delay_s)
                turns += 1
        if turns:
            self._begun = 0
        return answers

    def _may_wait(self, attempt: Attempt, now: float) -> bool:
        if attempt not in self._waiting and len(self._waiting) >= WAITING_MAX:
            return False
        return now - self._waiting.setdefault(attempt, now) < self._wait_s

    def note_end(self, attempt: Attempt) -> bool:
        """Forget one that waits."""
        self._waiting.pop(attempt, None)
        return False

    def note_written(self, attempt: Attempt) -> None:
        """Let the next one begin."""
        self._let_in.discard(attempt)
        self.again |= self._waiting.keys()


def _survives_at(one: Attempt, other: Attempt, now: float) -> float:
    """Return when a suspect has run long enough for another to begin beside it."""
    if one.began_at is None:
        return now + ASK_AGAIN_S
    losses = max(one.job.losses, other.job.losses)
    return one.began_at + min(SURVIVED_S * 4.0 ** (losses - 1), SURVIVED_S_MAX)
