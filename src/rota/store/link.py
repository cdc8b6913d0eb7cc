"""A connection of a worker's own, which never waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg
from psycopg import pq

from rota.errors import DatabaseUnavailable
from rota.store.db import ANSWER_S, LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S, Database, Operation
from rota.store.trouble import refused

T = TypeVar("T")


class Link:
    """A connection of a worker's own, opened when first used and again after it broke. It runs one operation at a time."""

    def __init__(
        self,
        database: Database,
        role: str,
        *,
        answer_s: float | None = None,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._database = database
        self._role = role
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._statement_timeout_s = statement_timeout_s
        self._lock_timeout_s = lock_timeout_s
        self._connection: psycopg.AsyncConnection | None = None
        self._turn = asyncio.Lock()  # while one operation waits for its answer, the next one's time does not run

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation. Raises DatabaseUnavailable, also when the database refuses it: what is the matter is for people to see and mend, and
        the worker tries again."""
        async with self.opened() as connection:
            return await self._database.adrive(connection, operation, answer_s=self._answer_s)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """The connection, for a block. After an error that leaves it in doubt, the next block opens a new one."""
        async with self._turn:
            with refused():
                connection = await self._open()
            try:
                with refused():
                    yield connection
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

    async def close(self) -> None:
        """Close it; the next `run` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> psycopg.AsyncConnection:
        if self._connection is None or self._connection.closed:
            try:
                async with asyncio.timeout(self._answer_s):
                    self._connection = await self._database.connect(
                        self._role, statement_timeout_s=self._statement_timeout_s, lock_timeout_s=self._lock_timeout_s
                    )
            except TimeoutError:
                raise DatabaseUnavailable(f"the database does not answer: no connection within {self._answer_s:g} s") from None
        return self._connection
