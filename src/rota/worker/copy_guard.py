"""Keeps a worker from working in a restored copy: a production dump in staging sends no mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import CopiedDatabase
from rota.observe.events import DatabaseCopied
from rota.runtime.service import Service
from rota.runtime.throttle import Throttle
from rota.store import ops

if TYPE_CHECKING:
    from rota.runtime.service import PauseGate
    from rota.store.link import StoreLink
    from rota.worker.parts import Parts

CHECK_S = 60.0
"""Seconds between checks while the worker works: the database may be renamed meanwhile."""
PAUSED_CHECK_S = 2.0
"""Seconds between checks while it is paused: it continues soon after `rota resume --copy`."""
LOG_S = 60.0
"""Seconds between two log lines while it is paused."""


class CopyGuard(Service):
    """Closes the pause gate while the recorded identity names another database or another server. A
    drain ends then."""

    name = "copy guard"

    def __init__(self, parts: Parts, link: StoreLink, pause_gate: PauseGate) -> None:
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._closes = pause_gate
        """Not `pause_gate`, which would stop this very service."""
        self._lines = Throttle(parts.clock, LOG_S)

    async def tick(self) -> float | None:
        """Check once."""
        self._closes.closed = copied = await self._link.run(ops.copy_check())
        if copied is None:
            self._lines.reset()
            return CHECK_S
        if self._parts.spec.config.drain:
            self._parts.shutdown.fail(CopiedDatabase(copied))
        elif self._lines.allows():
            self.bus.emit(DatabaseCopied(reason=copied))
        return PAUSED_CHECK_S
