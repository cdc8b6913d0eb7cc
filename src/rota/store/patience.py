"""How long an answer is waited for, whatever became of the network."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from rota.errors import DatabaseUnavailable

CANCEL_S = 2.0
"""At most so long, and at most a quarter of the limit, a server that did not answer in time may take to hear that nobody waits any more."""


@contextmanager
def within(connection: psycopg.AsyncConnection, limit_s: float) -> Iterator[None]:
    """When the block takes longer, have the server cancel its statement; when that brings no answer either, cut the connection. Raises
    DatabaseUnavailable then."""
    patience = _Patience(connection, limit_s)
    try:
        yield
    except psycopg.Error as error:
        if patience.has_cut:
            raise DatabaseUnavailable(f"the database does not answer: nothing within {limit_s:g} s") from error
        raise
    finally:
        patience.end()


class _Patience:
    def __init__(self, connection: psycopg.AsyncConnection, limit_s: float) -> None:
        self.has_cut = False
        self._connection = connection
        self._cancel_s = min(CANCEL_S, limit_s / 4)
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(limit_s, self._lose)

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _lose(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._cut())

    async def _cut(self) -> None:
        # Else a statement that waits for a lock would go on waiting, and hold locks itself, for nobody.
        with suppress(psycopg.Error, OSError):
            await self._connection.cancel_safe(timeout=self._cancel_s)
        await asyncio.sleep(self._cancel_s)
        self.has_cut = True
        # Whoever waits for the connection finds its end. To cancel the waiting would be to wait for the server once more.
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
