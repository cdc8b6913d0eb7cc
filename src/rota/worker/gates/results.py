"""The gate for jobs that waited for others: before they begin, it reads what came of those.

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

READ_MAX = 20
"""Most attempts of one statement: each may have waited for a thousand jobs."""

_IN_SLOT = Wait(in_slot=True)


class ResultReader(Service):
    """Reads results: one statement for those that were requested while the one before ran."""

    name = "result reader"

    def __init__(self, parts: Parts, link: StoreLink) -> None:
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._asked: list[Attempt] = []

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """Hold back, in their slots, those that are to be told of others; read it soon."""
        untold = [attempt for attempt in batch if attempt.results is None]
        if not untold:
            return ALL_MAY_BEGIN
        self._asked += untold
        self.wake()
        return dict.fromkeys(untold, _IN_SLOT)

    async def tick(self) -> float | None:
        """Read what the requested attempts are told."""
        asked, self._asked = self._asked[:READ_MAX], self._asked[READ_MAX:]
        for attempt in asked:
            if attempt.is_over:  # the worker is going down, or the job was lost while it waited
                self._parts.executor.drop(attempt)
        batch = [attempt for attempt in asked if not attempt.is_over]
        if not batch:
            return 0 if self._asked else None
        ids = [attempt.job.id for attempt in batch]
        try:
            told = await self._link.run(ops.read_results(ids))
        except DatabaseUnavailable as error:
            if not error.refused:
                self._asked = batch + self._asked
                raise
            for attempt in batch:
                why = f"what came of the jobs that it waited for cannot be read: {error}"
                self._parts.executor.refuse(attempt, why)
            return 0
        for attempt in batch:
            attempt.results = told[attempt.job.id]
            self._parts.executor.resume(attempt)
        return 0

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
