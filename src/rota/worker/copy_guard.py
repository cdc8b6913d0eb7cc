"""Keeps a worker's maintenance from a restored copy, and reports the copy. The database itself
gives a copy's jobs to no claim."""

from __future__ import annotations

from typing import Protocol

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


class EndsWorker(Protocol):
    """Ends the worker with an error: the worker's shutdown."""

    def fail(self, failure: CopiedDatabase) -> None: ...


class CopyGuard(Service):
    """Closes the pause gate while the recorded identity names another database; ends a drain."""

    name = "copy guard"

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        pause_gate: PauseGate,
        drain: EndsWorker | None,
    ) -> None:
        """Make one; `drain` is what ends a drain; None: the worker stays."""
        super().__init__(bus, clock)
        self._drain = drain
        self._link = link
        self._closes = pause_gate
        """Not `pause_gate`, which would stop this very service."""
        self._lines = Throttle(clock, LOG_S)

    async def tick(self) -> float | None:
        self._closes.closed = copied = await self._link.run(ops.copy_check())
        if copied is None:
            self._lines.reset()
            return CHECK_S
        if self._drain is not None:
            self._drain.fail(CopiedDatabase(copied))
        elif self._lines.allows():
            self.bus.emit(DatabaseCopied(reason=copied))
        return PAUSED_CHECK_S
