"""A connection of a worker's own."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import psycopg
from psycopg import pq

from rota.errors import DatabaseUnavailable
from rota.store.db import STATEMENT_TIMEOUT_S, Database, Operation
from rota.store.trouble import translated

T = TypeVar("T")


class Link:
    """A connection of a worker's own, opened when first used and again after it broke. No statement on it takes longer than `timeout_s`."""

    def __init__(self, database: Database, role: str, timeout_s: int = STATEMENT_TIMEOUT_S) -> None:
        self._database = database
        self._role = role
        self._timeout_s = timeout_s
        self._connection: psycopg.AsyncConnection | None = None
        self._opening = asyncio.Lock()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation. After an error that leaves the connection in doubt, the next call opens a new one."""
        connection = await self.open()
        try:
            with translated():
                return await self._database.adrive(connection, operation)
        except BaseException as error:
            # Whatever interrupted it, a cancellation included: a connection that is not idle must not be used again. Nor one that answers and
            # does not serve: after a failover it leads to a server that has become read-only.
            if (
                isinstance(error, DatabaseUnavailable)
                or connection.closed
                or connection.info.transaction_status != pq.TransactionStatus.IDLE
            ):
                await self.close()
            raise

    async def open(self) -> psycopg.AsyncConnection:
        """The connection, opened if need be."""
        async with self._opening:
            if self._connection is None or self._connection.closed:
                self._connection = await self._database.connect(self._role, self._timeout_s)
            return self._connection

    async def close(self) -> None:
        """Close it; the next `run` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
