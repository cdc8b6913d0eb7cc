"""The gates that an attempt passes in its slot: one statement answers for all that wait there.

Only a job asks it of which no start may go unseen, or that has waited for other jobs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from rota.errors import DatabaseUnavailable
from rota.model.awaited import has_awaited
from rota.model.outcome import End, HandedBack
from rota.runtime.clock import Clock
from rota.store import ops
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.gates import REFUSED_S, Answers, Gate

LOCKED_S = 0.1
"""The pause if another transaction has locked the row."""


class SlotGate(Gate):
    """Lets attempts wait in their slots until the database has answered for them."""

    asked_max: int
    """Most attempts of one statement."""

    def __init__(self, clock: Clock, link: StoreLink) -> None:
        self.again = set()
        self._clock = clock
        self._link = link
        self._passed: set[Attempt] = set()

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Ask for the first ones; the others are asked for again at once."""
        waiting = [attempt for attempt in batch if attempt not in self._passed]
        asked, others = waiting[: self.asked_max], waiting[self.asked_max :]
        if not asked:
            return {}
        answers = await self.answer(asked)
        self._passed.update(attempt for attempt in asked if attempt not in answers)
        return {**answers, **dict.fromkeys(others, self._clock.monotonic())}

    @abstractmethod
    async def answer(self, asked: Sequence[Attempt]) -> Answers:
        """Ask the database with one statement. Those without an answer have passed."""

    def note_end(self, attempt: Attempt) -> None:
        self._passed.discard(attempt)


class StartRecordGate(SlotGate):
    """Records starts: of jobs with one attempt only, jobs that were lost before, and types with
    `on_lost="dead"`."""

    asked_max = 1_000

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of which the claim says so."""
        return [attempt for attempt in claimed if attempt.must_record_start]

    async def answer(self, asked: Sequence[Attempt]) -> Answers:
        """Record the starts. If the answer is lost with a commit, the next one is the same."""
        claims = [(one.job.id, one.job.claims, one.shares_turn) for one in asked]
        recorded = await self._link.run(ops.start(claims))
        answers: dict[Attempt, float | End] = {}
        for attempt in asked:
            match recorded.get(attempt.job.id):
                case True:
                    pass
                case False:  # another transaction has locked its row
                    answers[attempt] = self._clock.monotonic() + LOCKED_S
                case None:
                    attempt.lose()
                    answers[attempt] = HandedBack("its lease was lost")
                case ops.Refused(why):
                    reason = f"its start could not be recorded: {why}"
                    answers[attempt] = HandedBack(reason, REFUSED_S)
        return answers


class ResultGate(SlotGate):
    """Reads what came of the jobs that a job waited for."""

    asked_max = 20
    """Each may have waited for a thousand jobs."""

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those that have waited for others; their results are unknown from now on."""
        chosen = [one for one in claimed if one.job.meta_json is not None and has_awaited(one.job)]
        for attempt in chosen:
            attempt.results = None
        return chosen

    async def answer(self, asked: Sequence[Attempt]) -> Answers:
        """Read their results."""
        try:
            told = await self._link.run(ops.read_results([one.job.id for one in asked]))
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            why = f"the results of the jobs that it waited for cannot be read: {error}"
            return dict.fromkeys(asked, HandedBack(why, REFUSED_S))
        for attempt in asked:
            attempt.results = told[attempt.job.id]
        return {}
