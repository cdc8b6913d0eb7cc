"""Asks the database before attempts begin in their slots: it reads the results of the jobs that
they waited for, and records the starts of jobs that must not start unseen: jobs with one attempt,
jobs that were lost before, and jobs of types with `on_lost="dead"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from rota.errors import DatabaseUnavailable
from rota.model.outcome import End, HandedBack
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink
from rota.worker.attempt import LOST, Attempt

STARTS_MAX = 1_000
RESULTS_MAX = 20
"""Most attempts whose results one statement reads: each may have waited for a thousand jobs."""
LOCKED_S = 0.1
"""Seconds to pause if another transaction has locked the row."""
REFUSED_S = 10.0
"""Seconds until a job comes again for which the database refuses the answer."""


class Starter(Service):
    name = "starter"

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        begin: Callable[[Sequence[Attempt]], None],
        end: Callable[[Attempt, End], None],
    ) -> None:
        """`begin` takes attempts that may begin; `end` frees the slot of an attempt."""
        super().__init__(bus, clock)
        self._link = link
        self._begin = begin
        self._end = end
        self._waiting: dict[Attempt, float] = {}
        """By attempt, when it is asked for next."""

    def take(self, attempts: Iterable[Attempt]) -> None:
        self._waiting |= dict.fromkeys(attempts, 0.0)
        self.wake()

    def hasten(self, attempt: Attempt) -> None:
        """Ask at once for an attempt that waits: it was cancelled."""
        if attempt in self._waiting:
            self._waiting[attempt] = 0.0
            self.wake()

    async def tick(self) -> float | None:
        now = self.clock.monotonic()
        due = [attempt for attempt, at in self._waiting.items() if at <= now][:STARTS_MAX]
        for attempt in due:
            self._waiting[attempt] = inf
        try:
            await self._answer(due)
        except DatabaseUnavailable:
            self._waiting.update((attempt, 0.0) for attempt in due if attempt in self._waiting)
            raise
        if due:
            return 0
        at = min(self._waiting.values(), default=None)
        return None if at is None else max(0.0, at - now)

    async def close(self) -> None:
        await self._link.close()

    async def _answer(self, due: Sequence[Attempt]) -> None:
        batch = self._drop_over(due)
        # The start last: a recorded start is never taken back.
        for needs, ask in (
            (_needs_results, self.read_results),
            (_needs_record, self.record_starts),
        ):
            asked = [attempt for attempt in batch if needs(attempt)]
            answers = await ask(asked) if asked else {}
            batch = [attempt for attempt in batch if attempt not in answers]
            for attempt, answer in answers.items():
                if isinstance(answer, float):
                    # At once if it was cancelled while it was asked for.
                    self._waiting[attempt] = min(self._waiting[attempt], answer)
                else:
                    del self._waiting[attempt]
                    self._end(attempt, answer)
        batch = self._drop_over(batch)  # the worker went down, or a job was lost meanwhile
        for attempt in batch:
            del self._waiting[attempt]
        if batch:
            self._begin(batch)

    async def read_results(self, waiting: Sequence[Attempt]) -> dict[Attempt, float | End]:
        """Read the results that these waited for. Return attempts that may not begin, each with its
        outcome or when to ask again."""
        asked, others = waiting[:RESULTS_MAX], waiting[RESULTS_MAX:]
        try:
            told = await self._link.run(ops.read_results([attempt.job.id for attempt in asked]))
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            why = f"the results of the jobs that it waited for cannot be read: {error}"
            return dict.fromkeys(asked, HandedBack(why, REFUSED_S))
        for attempt in asked:
            attempt.results = told[attempt.job.id]
        return dict.fromkeys(others, self.clock.monotonic())

    async def record_starts(self, asked: Sequence[Attempt]) -> dict[Attempt, float | End]:
        """Record these starts; return as `read_results`. A second record changes nothing."""
        claims = [(attempt.job.id, attempt.job.claims, attempt.shares_turn) for attempt in asked]
        recorded = await self._link.run(ops.start(claims))
        answers: dict[Attempt, float | End] = {}
        for attempt in asked:
            match recorded.get(attempt.job.id):
                case True:
                    pass
                case False:  # another transaction has locked its row
                    answers[attempt] = self.clock.monotonic() + LOCKED_S
                case None:
                    if not attempt.is_over:
                        attempt.lose()
                    answers[attempt] = LOST
                case ops.Refused(why):
                    reason = f"its start could not be recorded: {why}"
                    answers[attempt] = HandedBack(reason, REFUSED_S)
        return answers

    def _drop_over(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts that are not over; free the slots of the others."""
        able = []
        for attempt in batch:
            if attempt.is_over:
                del self._waiting[attempt]
                self._end(attempt, HandedBack("it is over"))
            else:
                able.append(attempt)
        return able


def _needs_results(attempt: Attempt) -> bool:
    return attempt.results is None


def _needs_record(attempt: Attempt) -> bool:
    return attempt.must_record_start
