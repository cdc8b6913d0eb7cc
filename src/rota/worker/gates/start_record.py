"""The gate for jobs whose start must be recorded before they begin.

Those are jobs with one attempt only, jobs that were lost before, and types with `on_lost="dead"`.
Other jobs need no such statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.model.outcome import HandedBack
from rota.store import ops
from rota.worker.gates import REFUSED_S, Gate, Park

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.model.outcome import End
    from rota.runtime.clock import Clock
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers

LOCKED_S = 0.1
"""The pause if another transaction has locked the row."""


class StartRecordGate(Gate):
    """Records starts: one statement for all attempts that wait for it."""

    def __init__(self, clock: Clock, link: StoreLink) -> None:
        self.again = set()
        self._clock = clock
        self._link = link
        self._recorded: set[Attempt] = set()

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of which the claim says so."""
        return [attempt for attempt in claimed if attempt.must_record_start]

    async def ask_to_read(self, batch: Sequence[Attempt]) -> Answers:
        """Record the starts before their arguments are read, too."""
        return await self.ask_in_slot(batch)

    def note_read(self, attempt: Attempt) -> None:
        """Record the start again when it begins: that may be much later."""
        self._recorded.discard(attempt)

    def look(self, attempt: Attempt, now: float) -> Park | None:
        """Let it wait in its slot until its start is recorded."""
        return None if attempt in self._recorded else Park.IN_SLOT

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Record the starts. If the answer is lost with a commit, the next one is the same."""
        asked = [attempt for attempt in batch if attempt not in self._recorded]
        if not asked:
            return {}
        claims = [(one.job.id, one.job.claims, one.shares_turn) for one in asked]
        recorded = await self._link.run(ops.start(claims))
        answers: dict[Attempt, float | End] = {}
        for attempt in asked:
            match recorded.get(attempt.job.id):
                case True:
                    self._recorded.add(attempt)
                case False:  # another transaction has locked its row
                    answers[attempt] = self._clock.monotonic() + LOCKED_S
                case None:
                    attempt.lose()
                    answers[attempt] = HandedBack("its lease was lost")
                case ops.Refused(why):
                    reason = f"its start could not be recorded: {why}"
                    answers[attempt] = HandedBack(reason, REFUSED_S)
        return answers

    def note_end(self, attempt: Attempt) -> bool:
        """Forget it."""
        self._recorded.discard(attempt)
        return False
