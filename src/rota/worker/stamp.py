"""Keeps a worker from working in a restored copy: a production dump in staging sends no mail."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.observe.events import DatabaseCopied
from rota.runtime.service import Service
from rota.store import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.observe.events import Bus
    from rota.runtime.service import Gate
    from rota.store.link import StoreLink

LOOK_S = 60.0
"""How often a worker that works looks: somebody may rename the database under it."""
CLOSED_LOOK_S = 2.0
"""How often one that waits does: it goes on within seconds of `rota resume --copy`."""
TELL_S = 60.0
"""How often it is said while it lasts."""


class StampWatch(Service):
    """Closes the gate while the schema's stamp names another database or another server."""

    name = "stamp watch"

    def __init__(
        self, bus: Bus, link: StoreLink, gate: Gate, on_copied: Callable[[str], None] | None
    ) -> None:
        super().__init__(bus)
        self._link = link
        self._closing = gate
        self._on_copied = on_copied
        """In a drain: it ends then."""
        self._tell_at = 0.0

    async def tick(self) -> float | None:
        """Look once."""
        self._closing.closed = copied = await self._link.run(ops.copy_check())
        if copied is None:
            self._tell_at = 0.0
            return LOOK_S
        if self._on_copied is not None:
            self._on_copied(copied)
        elif (now := monotonic()) >= self._tell_at:
            self._tell_at = now + TELL_S
            self.bus.emit(DatabaseCopied(reason=copied))
        return CLOSED_LOOK_S
