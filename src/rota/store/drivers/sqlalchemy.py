"""SQLAlchemy on psycopg or asyncpg: sessions and connections, plain and async.

Statements go through SQLAlchemy's connection, never to the driver's: SQLAlchemy sends BEGIN with
the first statement that it sees, and a statement that bypasses it would be committed at once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Connection, TextClause
from sqlalchemy import text as make_clause
from sqlalchemy.exc import DBAPIError, PendingRollbackError, UnboundExecutionError
from sqlalchemy.orm import Session

from rota.errors import UsageError
from rota.store.driver import Params, Row, format_params
from rota.store.drivers import psycopg3
from rota.store.errors import RowRefused, ServerTrouble, StoreError

if TYPE_CHECKING:  # needs greenlet, which SQLAlchemy brings only with its extra `asyncio`
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

ERRORS = (DBAPIError, PendingRollbackError, OSError, UnicodeEncodeError, IndexError)
"""psycopg raises the last two errors, and SQLAlchemy lets them pass."""
_DRIVERS = ("psycopg", "asyncpg")
_MARK = re.compile(r"%\((\w+)\)s|%%|:")


class SqlAlchemyDriver:
    """A `Session` or a `Connection`."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS
    joins_transaction: ClassVar[bool] = True
    """SQLAlchemy begins a transaction by itself, and AUTOCOMMIT is refused."""

    def __init__(self, given: Session | Connection) -> None:
        self._given = given
        self._checked: Connection | None = None

    def run(self, text: bytes, params: Params | None) -> list[Row]:
        """Run a statement and return its rows. Raises UsageError if the connection does not fit."""
        if params is None:
            clause, values = _escape(text), None
        else:
            clause, values = _mark(text), format_params(params)
        # A streaming connection would declare a cursor, which takes no INSERT.
        options = {"stream_results": False, "yield_per": None}
        result = self._find_connection().execute(clause, values, execution_options=options)
        return [tuple(row) for row in result] if result.returns_rows else []

    def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, one by one: SQLAlchemy has no pipeline."""
        return [row for params in each for row in self.run(text, params)]

    def transaction(self) -> AbstractContextManager[object]:
        """Make a savepoint and release it."""
        return self._find_connection().begin_nested()

    @property
    def psycopg_connection(self) -> Any:
        """The psycopg connection beneath; None: SQLAlchemy is on asyncpg."""
        connection = self._find_connection()
        is_psycopg = connection.dialect.driver.startswith("psycopg")
        return connection.connection.driver_connection if is_psycopg else None

    def translate(self, error: Exception) -> StoreError:
        return translate(error)

    def _find_connection(self) -> Connection:
        """Return the connection; a session begins its transaction, and flushes nothing."""
        if self._checked is None:
            given = self._given
            try:
                found = given if isinstance(given, Connection) else given.connection()
            except UnboundExecutionError as error:
                raise UsageError(
                    "this Session has no engine of its own; pass the connection to Rota's "
                    "database, as in session.connection(bind_arguments={'mapper': User})"
                ) from error
            _refuse_unfit(found)
            self._checked = found
        return self._checked


class AsyncSqlAlchemyDriver:
    """An `AsyncSession` or an `AsyncConnection`."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS
    joins_transaction: ClassVar[bool] = True

    def __init__(self, given: AsyncSession | AsyncConnection) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415

        self._given = given
        self._session = given if isinstance(given, AsyncSession) else None
        plain = given.sync_session if isinstance(given, AsyncSession) else given.sync_connection
        if plain is None:
            raise UsageError(
                "this AsyncConnection is not open yet: use `async with engine.connect() as …`"
            )
        self._plain = SqlAlchemyDriver(plain)

    async def run(self, text: bytes, params: Params | None) -> list[Row]:
        """Run a statement and return its rows. Raises UsageError if the connection does not fit."""
        return await self._given.run_sync(lambda _: self._plain.run(text, params))

    async def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        return await self._given.run_sync(lambda _: self._plain.run_each(text, each))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[object]:
        """Make a savepoint and release it."""
        connection = await self._session.connection() if self._session else self._given
        async with connection.begin_nested() as nested:
            yield nested

    @property
    def psycopg_connection(self) -> Any:
        return self._plain.psycopg_connection

    def translate(self, error: Exception) -> StoreError:
        return translate(error)


def translate(error: Exception) -> StoreError:
    """Return the StoreError for one of `ERRORS`."""
    if isinstance(error, PendingRollbackError):  # SQLAlchemy itself refuses
        return RowRefused(str(error), name=type(error).__name__, driver_error=error)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, psycopg3.ERRORS):
        return psycopg3.translate(cause, raised=error)
    known = None if cause is None else cause.__cause__
    if isinstance(known, Exception) and _is_of(known, "asyncpg"):
        from rota.store.drivers import asyncpg  # noqa: PLC0415 - one of its errors is here

        return asyncpg.translate(known, error)
    return ServerTrouble(str(cause or error), name=type(error).__name__, driver_error=error)


def _is_of(error: Exception, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(error).__mro__)


def _refuse_unfit(connection: Connection) -> None:
    dialect = connection.dialect
    if dialect.name != "postgresql" or not dialect.driver.startswith(_DRIVERS):
        raise UsageError(
            f"this SQLAlchemy connection is on {dialect.name}+{dialect.driver}; Rota needs "
            "postgresql+psycopg or postgresql+asyncpg"
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise UsageError(
            "this SQLAlchemy connection is in AUTOCOMMIT: the job would be there before your "
            "commit and stay after your rollback; use an engine without AUTOCOMMIT, or leave "
            "connection out"
        )


@cache
def _mark(text: bytes) -> TextClause:
    """Return a statement with SQLAlchemy's parameters, each sent as text."""
    # Every other colon is escaped: text() would read `::text` behind a name as part of it.
    return make_clause(_MARK.sub(_mark_one, text.decode()))


def _mark_one(found: re.Match[str]) -> str:
    if found[1] is not None:
        return rf":{found[1]}\:\:text"
    return "%" if found[0] == "%%" else r"\:"


def _escape(command: bytes) -> TextClause:
    return make_clause(command.decode().replace(":", r"\:"))
