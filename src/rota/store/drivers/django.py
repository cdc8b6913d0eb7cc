"""Django on psycopg 3: a connection of `django.db.connections`, or its alias.

Statements go through Django's cursor, so they are in its query log and pass its wrappers. Errors
are Django's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist
from psycopg.types.datetime import TimestamptzLoader

from rota.errors import UsageError
from rota.store.driver import Params, Row, format_params
from rota.store.drivers import psycopg3
from rota.store.errors import RowRefused, ServerTrouble, StoreError

T = TypeVar("T")


class DjangoDriver:
    """A connection of Django, in its thread."""

    errors: ClassVar[tuple[type[Exception], ...]] = (Error, UnicodeEncodeError, IndexError)

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        library = getattr(getattr(connection, "Database", None), "__name__", "no library")
        if connection.vendor != "postgresql" or library != "psycopg":
            raise UsageError(
                f"Django's connection {connection.alias!r} is on {connection.vendor} with "
                f"{library}; Rota needs PostgreSQL with psycopg 3, which Django uses if it is "
                "installed"
            )
        self._connection = connection

    @classmethod
    def find(cls, alias: str) -> DjangoDriver:
        """Make a driver for the connection of an alias. Raises UsageError."""
        try:
            return cls(connections[alias])
        except ConnectionDoesNotExist:
            raise UsageError(
                f"connection is {alias!r}, and Django's DATABASES has no such alias; it has "
                f"{', '.join(connections)}"
            ) from None
        except ImproperlyConfigured as error:
            raise UsageError(
                f"connection is the text {alias!r}, the alias of a database of Django's: {error}"
            ) from None

    def run(self, text: bytes, params: Params | None) -> list[Row]:
        if text.startswith(b"rollback to savepoint"):
            # After a model's error Django refuses every statement, also this ROLLBACK TO.
            self._connection.needs_rollback = False
        with self._connection.cursor() as cursor:
            # Instants with their zone, also without USE_TZ.
            cursor.cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
            cursor.execute(text.decode(), None if params is None else format_params(params))
            return cursor.fetchall() if cursor.description else []

    def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, one by one: Django has no pipeline."""
        return [row for params in each for row in self.run(text, params)]

    @property
    def joins_transaction(self) -> bool:
        return self._connection.in_atomic_block or not self._connection.get_autocommit()

    def transaction(self) -> AbstractContextManager[object]:
        """Begin and commit, or make a savepoint and release it. Raises UsageError if Django would
        do it on another connection."""
        alias = self._connection.alias
        if connections[alias] is not self._connection:
            raise UsageError(
                f"this is not the connection that Django has for {alias!r} in this thread, maybe a "
                "copy of it, so atomic does not apply to it: call set_autocommit(False) on it, and "
                "commit it yourself"
            )
        return transaction.atomic(using=alias)

    @property
    def psycopg_connection(self) -> Any:
        """The psycopg connection beneath."""
        self._connection.ensure_connection()
        return self._connection.connection

    @staticmethod
    def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine whose `sync_to_async` calls run in this thread, and so on its
        connection."""

        async def wait() -> T:
            return await coroutine

        return async_to_sync(wait)()

    @staticmethod
    async def call_from_loop(call: Callable[[], T]) -> T:
        """Call a function in the thread of the connection."""
        return await sync_to_async(call)()

    def translate(self, error: Exception) -> StoreError:
        cause = error.__cause__ if isinstance(error, Error) else error
        if isinstance(cause, psycopg3.ERRORS):
            return psycopg3.translate(cause, raised=error)
        # Django itself refuses, as in a failed transaction.
        kind = RowRefused if isinstance(error, DatabaseError) else ServerTrouble
        return kind(str(error), name=type(error).__name__, driver_error=error)
