"""LISTEN on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

from psycopg import sql

from rota.store.link import Link
from rota.store.trouble import translated


async def listen(link: Link, channel: str) -> None:
    """Begin to listen. Raises DatabaseUnavailable."""
    connection = await link.open()
    with translated():
        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))


async def notifications(link: Link) -> AsyncIterator[str]:
    """Yield the payload of each NOTIFY. Raises DatabaseUnavailable when the connection breaks."""
    connection = await link.open()
    with translated():
        async for notification in connection.notifies():
            yield notification.payload
