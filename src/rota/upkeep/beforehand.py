"""The upkeep that may wait elsewhere, and that a drain does before its jobs: as much of it as needs no waiting."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from rota.errors import DatabaseUnavailable
from rota.store.link import StoreLink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.store.db import Database

EACH_S = 1.0
"""The longest that each part may take."""
LOCK_S = 0.1
"""The longest that it waits for a lock: nobody who is not in the way for long holds one for longer."""


class Part(Protocol):
    """A service that can do something beforehand."""

    async def begin(self, link: StoreLink) -> None:
        """Do it, over this connection."""


async def beforehand(parts: Iterable[Part], database: Database) -> None:
    """Let the parts do what needs no waiting, one after the other. What is left, or is the matter, their first turns beside the jobs see to and tell."""
    link = StoreLink(database, "beforehand", statement_timeout_s=EACH_S, lock_timeout_s=LOCK_S)
    try:
        for part in parts:
            with suppress(TimeoutError, DatabaseUnavailable):
                async with asyncio.timeout(EACH_S):
                    await part.begin(link)
    finally:
        await link.close()
