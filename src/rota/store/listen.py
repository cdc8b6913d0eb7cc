"""LISTEN on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from rota.store.driver import Operation, adrive
from rota.store.drivers.own import Deadline
from rota.store.link import StoreLink

PROBE_S = 20.0
"""Seconds between probes: a connection that died silently brings no NOTIFY and no error."""
PROBE_ANSWER_S = 5.0
"""Longest wait for the answer to a probe, in seconds."""


async def notifications(
    link: StoreLink, *channels: str, probe: Callable[[], Operation[object]]
) -> AsyncIterator[tuple[str, str] | None]:
    """Listen, and yield the channel and the payload of each NOTIFY; first, and after each answer to
    a probe, None. A probe writes: no NOTIFY comes from a read-only server. Raises
    DatabaseUnavailable when the connection breaks, and within PROBE_S + PROBE_ANSWER_S when it is
    silently dead."""
    async with link.borrow() as connection:
        limit = Deadline(connection, PROBE_ANSWER_S)
        with limit:
            await connection.listen(*channels)
        while True:
            await adrive(connection.driver(), probe(), link.statements, limit=limit)
            yield None
            async for notification in connection.notifies(timeout=PROBE_S):
                yield notification.channel, notification.payload
