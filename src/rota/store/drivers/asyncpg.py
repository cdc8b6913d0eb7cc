"""asyncpg: a `Connection`, or a connection lent by a pool."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import asyncpg

from rota.store.driver import Params, Row, format_params
from rota.store.errors import ServerTrouble, StoreError, Unstorable, store_error
from rota.store.paramstyle import number_parameters

ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""OSError: a broken connection, or no answer within `command_timeout`."""


class AsyncpgDriver:
    """An `asyncpg.Connection`. Values travel as text, whatever codecs are set on it."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def run(self, text: bytes, params: Params | None) -> list[Row]:
        if params is None:
            await self._connection.execute(text.decode())
            return []
        numbered, names = number_parameters(text)
        values = format_params(params)
        given = [values[name] for name in names]
        # asyncpg's own class of rows, whatever the connection's owner has set.
        found = await self._connection.fetch(numbered, *given, record_class=asyncpg.Record)
        return [tuple(row) for row in found]

    async def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, in a pipeline."""
        numbered, names = number_parameters(text)
        given = ([values[name] for name in names] for values in map(format_params, each))
        found = await self._connection.fetchmany(numbered, given, record_class=asyncpg.Record)
        return [tuple(row) for row in found]

    @property
    def joins_transaction(self) -> bool:
        return self._connection.is_in_transaction()

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()

    @property
    def psycopg_connection(self) -> None:
        """None: asyncpg has no psycopg beneath."""

    def translate(self, error: Exception) -> StoreError:
        return translate(error, error)


def translate(error: Exception, raised: Exception) -> StoreError:
    """Return the StoreError for one of `ERRORS`; `raised`: the error for the application."""
    text, name = str(error), type(error).__name__
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None:
        # ValueError: asyncpg itself cannot send the value.
        kind = Unstorable if isinstance(error, ValueError) else ServerTrouble
        return kind(text, name=name, driver_error=raised)
    return store_error(
        text,
        sqlstate,
        name=name,
        # No severity: asyncpg found the connection closed.
        ends_session=getattr(error, "severity_en", None) != "ERROR",
        constraint=getattr(error, "constraint_name", None),
        table=getattr(error, "table_name", None),
        driver_error=raised,
    )
