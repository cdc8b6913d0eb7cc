"""The gate for jobs that waited for others: before they begin, it reads what came of those.

Other jobs need no such statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.model.awaited import has_awaited
from rota.model.outcome import HandedBack
from rota.store import ops
from rota.worker.gates import REFUSED_S, Gate, Park

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.runtime.clock import Clock
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers

READ_MAX = 20
"""Most attempts of one statement: each may have waited for a thousand jobs."""


class ResultGate(Gate):
    """Reads results: one statement for up to READ_MAX attempts that wait for theirs."""

    def __init__(self, clock: Clock, link: StoreLink) -> None:
        self.again = set()
        self._clock = clock
        self._link = link

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those that have waited for others; their results are unknown from now on."""
        chosen = [one for one in claimed if one.job.meta_json is not None and has_awaited(one.job)]
        for attempt in chosen:
            attempt.results = None
        return chosen

    def look(self, attempt: Attempt, now: float) -> Park | None:
        """Let it wait in its slot until its results are read."""
        return Park.IN_SLOT if attempt.results is None else None

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Read the results of the first ones; the others are asked for again at once."""
        untold = [attempt for attempt in batch if attempt.results is None]
        asked = untold[:READ_MAX]
        if not asked:
            return {}
        ids = [attempt.job.id for attempt in asked]
        try:
            told = await self._link.run(ops.read_results(ids))
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            why = f"what came of the jobs that it waited for cannot be read: {error}"
            return dict.fromkeys(asked, HandedBack(why, REFUSED_S))
        for attempt in asked:
            attempt.results = told[attempt.job.id]
        return dict.fromkeys(untold[READ_MAX:], self._clock.monotonic())
