"""The gate of rate limits: an attempt whose start lies ahead waits for it. The claim gave it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.runtime.clock import Clock
from rota.worker.attempt import Attempt
from rota.worker.gates import Answers, Gate


class StartGate(Gate):
    """Keeps attempts until the starts that their rate limits gave them ahead."""

    is_first = True

    def __init__(self, clock: Clock) -> None:
        self.again = set()
        self._clock = clock
        self._starts: dict[Attempt, float] = {}

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        # From now on: the claim was decided before its answer came.
        now = self._clock.monotonic()
        chosen = [attempt for attempt in claimed if attempt.starts_in_s > 0]
        self._starts.update((attempt, now + attempt.starts_in_s) for attempt in chosen)
        return chosen

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        now = self._clock.monotonic()
        return {one: at for one in batch if (at := self._starts.get(one, now)) > now}

    def note_end(self, attempt: Attempt) -> None:
        self._starts.pop(attempt, None)
