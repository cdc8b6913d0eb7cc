"""LISTEN on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rota.errors import DatabaseUnavailable
from rota.store.drivers.own import Deadline
from rota.store.link import StoreLink

PROBE_S = 10.0
"""How often a listener asks the server for an answer: a connection that died silently brings no
NOTIFY and no error."""
PROBE_ANSWER_S = 5.0
"""Longest wait for that answer, for which the server reads nothing."""


async def notifications(link: StoreLink, *channels: str) -> AsyncIterator[tuple[str, str] | None]:
    """Listen, and yield the channel and the payload of each NOTIFY.

    First, and after each answer to a probe, it yields None. Raises DatabaseUnavailable when the
    connection breaks, and within PROBE_S + PROBE_ANSWER_S when it is dead without having broken.
    """
    async with link.borrow() as connection:
        limit = Deadline(connection, PROBE_ANSWER_S)
        with limit:
            await connection.listen(*channels)
        yield None
        while True:
            async for notification in connection.notifications(PROBE_S):
                yield notification.channel, notification.payload
            with limit:
                is_read_only = await connection.is_read_only()
            if is_read_only:  # after a failover no NOTIFY comes from this server
                raise DatabaseUnavailable("the database refuses: its server has become read-only")
            yield None
