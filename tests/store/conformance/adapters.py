"""The drivers that the suite is run through, each described by one small adapter.

To add a driver:

1. Write `src/rota/store/drivers/<name>.py` with a class that keeps `Driver` or `AsyncDriver` of
   `rota.store.driver`, and let `find_driver` or `find_async_driver` find it.
2. Write an adapter here: how an application opens a connection, runs a statement of its own and
   ends a transaction. An async driver's adapter inherits from `AsyncAdapter`, which has a loop.
3. Add it to `ADAPTERS` in `kinds.py`. All tests of `test_driver.py` then run through it, on a real
   server.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Self, TypeVar

import asyncpg
import psycopg

from rota.store.db import Database
from rota.store.driver import AsyncDriver, Driver, Operation, adrive, drive
from rota.store.drivers import find_async_driver, find_driver

T = TypeVar("T")


class Adapter(ABC):
    """One connection of an application, opened as that driver opens it.

    All methods are plain, so that each test is written once.
    """

    begins_itself: ClassVar[bool]
    """Whether a connection without autocommit begins a transaction with its first statement."""
    server_error: ClassVar[type[Exception]]
    """What the driver raises when the server refuses a statement."""
    has_autocommit: ClassVar[bool] = True
    """Whether the driver takes a connection in autocommit. Otherwise the adapter commits after each
    call that is in no transaction, as a careful application does."""
    stays_broken: ClassVar[bool] = True
    """Whether a connection that the server ended is not opened again by the library."""
    sends_nul: ClassVar[bool] = False
    """Whether a NUL in a text is sent, for the server to refuse."""
    sends_ahead: ClassVar[bool] = False
    """Whether of many statements the server gets the first before the second is made. asyncpg
    collects 128 KiB before it sends."""

    @classmethod
    @abstractmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        """Open a connection."""

    @abstractmethod
    def close(self) -> None:
        """Close it, also when it is broken."""

    @abstractmethod
    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement of the application's, past Rota; return its rows."""

    @abstractmethod
    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        """Run an operation through the driver. Raises StoreError."""

    @abstractmethod
    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        """Run an operation as the client does; raise the error that the application gets."""

    def begin(self) -> None:
        """Begin a transaction, as the library does; in autocommit."""
        self.execute("begin")

    def commit(self) -> None:
        """Commit."""
        self.execute("commit")

    def rollback(self) -> None:
        """Roll back."""
        self.execute("rollback")

    def savepoint(self) -> None:
        """Set a savepoint."""
        self.execute("savepoint here")

    def rollback_to_savepoint(self) -> None:
        """Roll back to the savepoint."""
        self.execute("rollback to savepoint here")


class PsycopgAdapter(Adapter):
    """psycopg 3 in plain code."""

    begins_itself = True
    sends_ahead = True
    server_error = psycopg.Error

    def __init__(self, connection: psycopg.Connection, url: str) -> None:
        self.connection = connection
        self.database = Database(url)

    @classmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        return cls(psycopg.connect(url, autocommit=autocommit), url)

    def close(self) -> None:
        self.connection.close()

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        driver: Driver = find_driver(self.connection)
        return drive(driver, operation, self.database.statements, atomic=atomic)

    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.database.run(operation, self.connection, atomic=atomic)


class AsyncAdapter(Adapter):
    """A driver for event loops, with a loop of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Any, url: str) -> None:
        self.loop = loop
        self.connection = connection
        self.database = Database(url)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        driver: AsyncDriver = find_async_driver(self.connection)
        return self.wait(adrive(driver, operation, self.database.statements, atomic=atomic))

    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.wait(self.database.arun(operation, self.connection, atomic=atomic))


class AsyncPsycopgAdapter(AsyncAdapter):
    begins_itself = True
    sends_ahead = True
    server_error = psycopg.Error

    @classmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        loop = asyncio.new_event_loop()
        connecting = psycopg.AsyncConnection.connect(url, autocommit=autocommit)
        return cls(loop, loop.run_until_complete(connecting), url)

    def close(self) -> None:
        self.wait(self.connection.close())
        self.loop.close()

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        return self.wait(self._execute(text))

    async def _execute(self, text: str) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(text.encode())
        return await cursor.fetchall() if cursor.description else []


class AsyncpgAdapter(AsyncAdapter):
    """asyncpg, with codecs of the application's own."""

    begins_itself = False
    server_error = asyncpg.PostgresError
    sends_nul = True

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Any, url: str) -> None:
        super().__init__(loop, connection, url)
        self.transactions: list[Any] = []

    @classmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        loop = asyncio.new_event_loop()
        return cls(loop, loop.run_until_complete(cls._connect(url)), url)

    @classmethod
    async def _connect(cls, url: str) -> Any:
        connection = await asyncpg.connect(url)
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(
                kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
            )
        return connection

    def close(self) -> None:
        self.wait(self._close())
        self.loop.close()

    async def _close(self) -> None:
        self.connection.terminate()

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.wait(self.connection.fetch(text))]

    def begin(self) -> None:
        self.savepoint()

    def savepoint(self) -> None:
        self.transactions.append(self.connection.transaction())
        self.wait(self.transactions[-1].start())

    def commit(self) -> None:
        self.wait(self.transactions.pop().commit())

    def rollback(self) -> None:
        self.rollback_to_savepoint()

    def rollback_to_savepoint(self) -> None:
        self.wait(self.transactions.pop().rollback())
