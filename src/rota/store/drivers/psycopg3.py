"""psycopg 3, sync and async: the driver of Rota's own connections."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import ClassVar, Generic, TypeVar

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from rota.store.driver import Params, Row
from rota.store.errors import (
    ServerTrouble,
    SessionShared,
    StoreError,
    Unencodable,
    Unstorable,
    store_error,
)

Connection = TypeVar("Connection", bound=psycopg.Connection | psycopg.AsyncConnection)

ERRORS = (psycopg.Error, UnicodeEncodeError, IndexError)
"""IndexError: psycopg 3.3 looks for the first result, or the last error, of a broken connection
that has neither (psycopg issue 1337)."""
_PREPARED = "_pg3_"
"""The prefix of psycopg's names for prepared statements, in every server language."""
_SHARED = ("26000", "42P05", "08P01")
_UNSENT = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)
"""Without SQLSTATE: psycopg itself cannot send the value."""


class _OnPsycopg(Generic[Connection]):
    """What both drivers share: everything that sends nothing."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def joins_transaction(self) -> bool:
        if not self._connection.autocommit:
            return True
        return self._connection.info.transaction_status != pq.TransactionStatus.IDLE

    @property
    def psycopg_connection(self) -> Connection:
        return self._connection

    def translate(self, error: Exception) -> StoreError:
        return translate(error, self._connection)


class PsycopgDriver(_OnPsycopg[psycopg.Connection]):
    def __init__(self, connection: psycopg.Connection) -> None:
        super().__init__(connection)
        # A plain cursor with rows as tuples, whatever the connection's owner has set.
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)

    def run(self, text: bytes, params: Params | None) -> list[Row]:
        if params is not None:
            return self._cursor.execute(text, params, binary=True).fetchall()
        self._cursor.execute(text)
        return self._cursor.fetchall() if self._cursor.description else []

    def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, in a pipeline if libpq has pipelines."""
        cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
        cursor.format = pq.Format.BINARY
        cursor.executemany(text, each, returning=True)
        return [row for result in cursor.results() for row in result]

    def transaction(self) -> AbstractContextManager[object]:
        return self._connection.transaction()


class AsyncPsycopgDriver(_OnPsycopg[psycopg.AsyncConnection]):
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        super().__init__(connection)
        self._cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)

    async def run(self, text: bytes, params: Params | None) -> list[Row]:
        if params is not None:
            await self._cursor.execute(text, params, binary=True)
            return await self._cursor.fetchall()
        await self._cursor.execute(text)
        return await self._cursor.fetchall() if self._cursor.description else []

    async def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, in a pipeline if libpq has pipelines."""
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        cursor.format = pq.Format.BINARY
        await cursor.executemany(text, each, returning=True)
        return [row async for result in cursor.results() async for row in result]

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()


def translate(
    error: Exception,
    connection: psycopg.Connection | psycopg.AsyncConnection | None = None,
    raised: Exception | None = None,
) -> StoreError:
    """Return the StoreError for one of `ERRORS`, met on `connection`. `raised`: the error for the
    application, if a library wraps psycopg's error."""
    text, name, shown = str(error), type(error).__name__, raised or error
    if isinstance(error, UnicodeEncodeError):
        return Unencodable(_say_encoding(error, connection), name=name, driver_error=shown)
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        kind = Unstorable if isinstance(error, _UNSENT) else ServerTrouble
        return kind(text, name=name, driver_error=shown)
    if error.sqlstate in _SHARED and _PREPARED in text:
        return SessionShared(text, name=name, sqlstate=error.sqlstate, driver_error=shown)
    return store_error(
        text,
        error.sqlstate,
        name=name,
        # PostgreSQL always sends a severity; a pooler that speaks of its own connection does not.
        ends_session=error.diag.severity_nonlocalized != "ERROR",
        constraint=error.diag.constraint_name,
        table=error.diag.table_name,
        driver_error=shown,
    )


def _say_encoding(
    error: UnicodeEncodeError,
    connection: psycopg.Connection | psycopg.AsyncConnection | None,
) -> str:
    lacks = f"which has no {error.object[error.start : error.end][:20]!r}"
    if connection is None:
        return f"the connection has a client_encoding {lacks}; the statement was not sent"
    encoding = connection.info.parameter_status("client_encoding")
    says = f"the connection's client_encoding is {encoding}, {lacks}; the statement was not sent"
    return says if encoding == "UTF8" else f"{says}. SET client_encoding TO 'UTF8'"
