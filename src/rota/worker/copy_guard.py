"""Keeps a worker's maintenance from a restored copy, and reports the copy. The database itself
gives a copy's jobs to no claim."""

from __future__ import annotations

from collections.abc import Callable

from rota.errors import CopiedDatabase
from rota.observe.events import Bus, DatabaseCopied
from rota.runtime.clock import Clock
from rota.runtime.service import PauseGate, Service
from rota.runtime.throttle import Throttle
from rota.store import ops
from rota.store.link import StoreLink

CHECK_S = 60.0
"""Seconds between checks while the worker works, unless a claim finds a paused queue."""
PAUSED_CHECK_S = 2.0
"""Seconds between checks while paused: it notices `rota queues resume --copy` so soon."""
LOG_S = 60.0
"""Seconds between two log lines while the copy is paused."""


class CopyGuard(Service):
    """Closes the pause gate while the recorded identity names another database; ends a drain."""

    name = "copy guard"

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        pause_gate: PauseGate,
        end_drain: Callable[[CopiedDatabase], None] | None,
    ) -> None:
        """Without `end_drain` the worker stays, and waits until a person releases the copy."""
        super().__init__(bus, clock)
        self._end_drain = end_drain
        self._link = link
        self._closes = pause_gate
        """Not `pause_gate`, which would stop this very service."""
        self._lines = Throttle(clock, LOG_S)

    async def tick(self) -> float | None:
        self._closes.closed = copied = await self._link.run(ops.copy_check())
        if copied is None:
            self._lines.reset()
            return CHECK_S
        if self._end_drain is not None:
            self._end_drain(CopiedDatabase(copied))
        elif self._lines.allows():
            self.bus.emit(DatabaseCopied(reason=copied))
        return PAUSED_CHECK_S
