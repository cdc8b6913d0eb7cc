"""The databases of an App in a test: a database of the test's, or the test's connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, Unpack

from rota.errors import UsageError
from rota.store.db import Database, RunOptions
from rota.store.driver import Operation
from rota.store.drivers import find_async_driver, find_driver

T = TypeVar("T")


class LoopFreeDatabase(Database):
    """A database whose async calls use the sync pool, in a thread.

    A loop's pool can only be closed on its loop, which is gone when the database is dropped.
    """

    async def arun(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        if connection is not None:
            return await super().arun(operation, connection, **options)
        return await asyncio.to_thread(lambda: self.run(operation, **options))


class BoundDatabase(Database):
    """A database on one connection, in its open transaction, which Rota never ends."""

    def __init__(self, schema: str, connection: Any) -> None:
        """Raises UsageError for a connection that is unknown, without an open transaction, or async
        without a running loop."""
        super().__init__("", schema)
        self.connection = connection
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of an async connection; None: the connection is plain."""
        joins = self._find_driver(connection)
        if not joins:
            raise UsageError(
                "the test's connection is in autocommit, and no transaction is open on it: what a "
                "job writes would stay; open one, as in `with connection.transaction():`, and roll "
                "it back"
            )

    def _find_driver(self, connection: Any) -> bool:
        """Find out whether the connection is async; return whether a transaction is open on it."""
        try:
            return find_driver(connection).joins_transaction
        except UsageError as refusal:
            try:
                joins = find_async_driver(connection).joins_transaction
            except UsageError:
                raise refusal from None
        self.loop = _find_running_loop()
        if self.loop is None:
            raise UsageError(
                "the test's connection is an async one, and no loop runs here: make the Harness in "
                "an async fixture or an async test"
            )
        return joins

    @property
    def is_async(self) -> bool:
        return self.loop is not None

    def conninfo(self, role: str, **timeouts: float) -> str:
        """Refuse: there is no second connection."""
        raise UsageError(
            "in this test the App has one connection, the test's own, so no worker can start and "
            "nothing else can connect: call drain or perform of the Harness"
        )

    def run(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        """Run an operation on the test's connection, or on the caller's."""
        if connection is not None and connection is not self.connection:
            return super().run(operation, connection, **options)
        if self.loop is None:
            return super().run(operation, self.connection, **options)
        if self.loop is _find_running_loop():
            operation.close()
            raise UsageError("the test's connection is an async one: await the a… call instead")
        # A plain handler in its thread, while the loop waits for the thread.
        waiting = self.arun(operation, **options)
        return asyncio.run_coroutine_threadsafe(waiting, self.loop).result()

    async def arun(
        self,
        operation: Operation[T],
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> T:
        """As `run`, from a loop; a plain connection blocks the loop during a statement."""
        if connection is not None and connection is not self.connection:
            return await super().arun(operation, connection, **options)
        if self.loop is None:
            return await self.call_from_loop(lambda: self.run(operation, **options))
        return await super().arun(operation, self.connection, **options)

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a loop of its own, from the thread of a plain connection."""
        driver: Any = find_driver(self.connection)
        run: Callable[[Coroutine[Any, Any, T]], T] = getattr(driver, "run_coroutine", asyncio.run)
        return run(coroutine)

    async def call_from_loop(self, call: Callable[[], T]) -> T:
        """Call a function that uses a plain connection, of Django's in the connection's thread."""
        driver: Any = find_driver(self.connection)
        if not hasattr(driver, "call_from_loop"):
            return call()
        called: T = await driver.call_from_loop(call)
        return called

    @property
    def has_thread(self) -> bool:
        """Whether a loop can reach the connection's thread, as with Django's."""
        return not self.is_async and hasattr(find_driver(self.connection), "call_from_loop")

    @contextmanager
    def open_transaction(self) -> Iterator[Any]:
        """Lend psycopg's connection beneath the test's, in a savepoint."""
        if self.is_async:
            raise UsageError(
                "ctx.transaction(): the test's connection is an async one, which a plain handler "
                "cannot use; give the Harness a plain connection"
            )
        driver = find_driver(self.connection)
        with driver.transaction():
            yield driver.psycopg_connection

    @asynccontextmanager
    async def aopen_transaction(self) -> AsyncIterator[Any]:
        """As `open_transaction`, on a loop."""
        if not self.is_async:
            raise UsageError(
                "ctx.transaction(): the test's connection is a plain one, which an async handler "
                "cannot use; give the Harness an async connection"
            )
        driver = find_async_driver(self.connection)
        async with driver.transaction():
            lent = driver.psycopg_connection
            if lent is None:
                raise UsageError(
                    "ctx.transaction(): it gives a connection of psycopg's, and the test's is one "
                    "of asyncpg's; give the Harness one on psycopg, or let the handler pass its "
                    "own to ctx.complete(…)"
                )
            yield lent


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
