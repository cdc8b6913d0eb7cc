"""The gate for jobs whose start must be recorded before they begin.

Those are jobs with one attempt only, jobs that were lost before, and types with `on_lost="dead"`.
Other jobs need no such statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.runtime.service import Service
from rota.store import ops
from rota.worker.gates import ALL_MAY_BEGIN, Answers, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.parts import Parts

LOCKED_S = 0.1
"""The pause if another transaction has locked all remaining rows."""

_IN_SLOT = Wait(in_slot=True)


class StartRecorder(Service):
    """Records starts: one statement for all that were requested while the one before ran."""

    name = "start recorder"

    def __init__(self, parts: Parts, link: StoreLink) -> None:
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._asked: list[Attempt] = []

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """Hold back, in their slots, those whose start must be recorded; record it soon."""
        unrecorded = [attempt for attempt in batch if attempt.must_record_start]
        if not unrecorded:
            return ALL_MAY_BEGIN
        self._asked += unrecorded
        self.wake()
        return dict.fromkeys(unrecorded, _IN_SLOT)

    async def tick(self) -> float | None:
        """Record the requested starts."""
        asked, self._asked = self._asked, []
        for attempt in asked:
            if attempt.is_over:  # the worker is going down, or the job was lost while it waited
                self._parts.executor.drop(attempt)
        batch = [attempt for attempt in asked if not attempt.is_over]
        if not batch:
            return None
        claims = [(attempt.job.id, attempt.job.claims) for attempt in batch]
        try:
            recorded = await self._link.run(ops.start(claims))
        except DatabaseUnavailable:
            # If it was committed after all, the next answer is the same.
            self._asked = batch + self._asked
            raise
        for attempt in batch:
            self._pass_on(attempt, recorded.get(attempt.job.id))
        return LOCKED_S if self._asked and not any(recorded.values()) else 0

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _pass_on(self, attempt: Attempt, answer: bool | ops.Refused | None) -> None:
        match answer:
            case True:
                self._parts.executor.begin(attempt)
            case False:  # another transaction has locked its row
                self._asked.append(attempt)
            case None:
                self._parts.executor.drop(attempt)
            case ops.Refused(why):
                self._parts.executor.refuse(attempt, f"its start could not be recorded: {why}")
