"""SQLAlchemy: sessions and connections, plain and async, on psycopg and on asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Self, TypeVar

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota.store.db import Database
from rota.store.driver import Operation, adrive, drive
from rota.store.drivers import find_async_driver, find_driver
from tests.store.conformance.adapters import Adapter

T = TypeVar("T")


class SqlAlchemyAdapter(Adapter):
    """A `Connection` on psycopg."""

    begins_itself = True
    server_error = DBAPIError
    has_autocommit = False
    stays_broken = False
    driver: ClassVar[str] = "psycopg"
    wraps_session: ClassVar[bool] = False

    def __init__(self, engine: Any, url: str, autocommit: bool) -> None:
        self.engine = engine
        self.url = url
        self.database = Database(url)
        self.autocommits = self.commits = autocommit
        self.nested: list[Any] = []
        self.target = self.make_target()

    @classmethod
    def open(cls, url: str, *, autocommit: bool = True) -> Self:
        return cls(cls.make_engine(make_url(url)), url, autocommit)

    @classmethod
    def make_engine(cls, url: URL) -> Any:
        """Make an engine of one connection: what is set on it stays."""
        drivername = f"postgresql+{cls.driver}"
        return create_engine(url.set(drivername=drivername), pool_size=1, max_overflow=0)

    def make_target(self) -> Any:
        """Open what is handed to Rota."""
        return Session(self.engine) if self.wraps_session else self.engine.connect()

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self.target, method)(*args)

    def close(self) -> None:
        self.target.close()
        self.engine.dispose()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        def run() -> list[tuple[Any, ...]]:
            result = self.call("execute", text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

        return self.commit_after(run)

    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.commit_after(lambda: self.drive(operation, atomic))

    def drive(self, operation: Operation[T], atomic: bool) -> T:
        return drive(find_driver(self.target), operation, self.database.statements, atomic=atomic)

    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.commit_after(lambda: self.database.run(operation, self.target, atomic=atomic))

    def commit_after(self, call: Callable[[], T]) -> T:
        """Do something, and commit it if no transaction was begun for more."""
        try:
            answer = call()
        except BaseException:
            if self.commits:
                self.call("rollback")
            raise
        if self.commits:
            self.call("commit")
        return answer

    def begin(self) -> None:
        self.commits = False

    def commit(self) -> None:
        self.call("commit")
        self.commits = self.autocommits

    def rollback(self) -> None:
        self.call("rollback")
        self.commits = self.autocommits

    def savepoint(self) -> None:
        self.nested.append(self.call("begin_nested"))

    def rollback_to_savepoint(self) -> None:
        self.nested.pop().rollback()


class SessionAdapter(SqlAlchemyAdapter):
    """A `Session` on psycopg."""

    wraps_session = True


class AsyncSqlAlchemyAdapter(SqlAlchemyAdapter):
    """An `AsyncConnection` on asyncpg, with a loop of its own."""

    driver = "asyncpg"
    sends_nul = True

    def __init__(self, engine: Any, url: str, autocommit: bool) -> None:
        self.loop = asyncio.new_event_loop()
        super().__init__(engine, url, autocommit)

    @classmethod
    def make_engine(cls, url: URL) -> Any:
        """Make an async engine of one connection."""
        drivername = f"postgresql+{cls.driver}"
        return create_async_engine(url.set(drivername=drivername), pool_size=1, max_overflow=0)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def make_target(self) -> Any:
        """Open what is handed to Rota."""
        return AsyncSession(self.engine) if self.wraps_session else self.wait(self._connect())

    async def _connect(self) -> Any:
        return await self.engine.connect()

    def call(self, method: str, *args: Any) -> Any:
        async def called() -> Any:
            return await getattr(self.target, method)(*args)

        return self.wait(called())

    def close(self) -> None:
        self.call("close")
        self.wait(self.engine.dispose())
        self.loop.close()

    def drive(self, operation: Operation[T], atomic: bool) -> T:
        driver = find_async_driver(self.target)
        return self.wait(adrive(driver, operation, self.database.statements, atomic=atomic))

    def ask(self, operation: Operation[T], *, atomic: bool = False) -> T:
        return self.commit_after(
            lambda: self.wait(self.database.arun(operation, self.target, atomic=atomic))
        )

    def rollback_to_savepoint(self) -> None:
        self.wait(self.nested.pop().rollback())


class AsyncSessionAdapter(AsyncSqlAlchemyAdapter):
    """An `AsyncSession` on asyncpg."""

    wraps_session = True


class AsyncPsycopgSessionAdapter(AsyncSessionAdapter):
    """An `AsyncSession` on psycopg."""

    driver = "psycopg"
    sends_nul = False
