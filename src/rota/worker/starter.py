"""Records the starts of jobs that may not begin unrecorded: those with one attempt only, those that were lost before, and types with
`on_lost="dead"`. Other jobs pay no such statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.observe.events import Bus
    from rota.store.link import StoreLink
    from rota.worker.held import Held


LOCKED_S = 0.1
"""The pause when only rows are left that somebody else's transaction has locked."""


class Starter(Service):
    """One statement records all starts that were asked for while the one before was under way."""

    name = "starter"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        on_recorded: Callable[[Held], None],
        on_lost: Callable[[Held], None],
        on_refused: Callable[[Held, str], None],
    ) -> None:
        super().__init__(bus)
        self._link = link
        self._on_recorded = on_recorded
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._asked: list[Held] = []

    def put(self, held: Held) -> None:
        """Take a job that has a slot and may begin as soon as that is recorded."""
        self._asked.append(held)
        self.wake()

    async def tick(self) -> float | None:
        """Record what was asked for."""
        batch, self._asked = self._asked, []
        for held in batch:
            if (
                held.end is not None
            ):  # the worker is going down, or the job was lost while it waited
                self._on_lost(held)
        batch = [held for held in batch if held.end is None]
        if not batch:
            return None
        try:
            recorded = await self._link.run(
                ops.start([(held.job.id, held.job.claims) for held in batch])
            )
        except DatabaseUnavailable:
            self._asked = (
                batch + self._asked
            )  # if it was committed all the same, the next answer is the same
            raise
        for held in batch:
            match recorded.get(held.job.id):
                case True:
                    self._on_recorded(held)
                case False:
                    self._asked.append(held)
                case None:
                    self._on_lost(held)
                case ops.Refused(why):
                    self._on_refused(held, why)
        return LOCKED_S if self._asked and not any(recorded.values()) else 0

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()
