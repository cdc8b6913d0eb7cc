"""The connections of other libraries that calls of Rota take, for type checkers.

A checker knows a connection by its methods, so only psycopg must be installed. At run time a driver
of `store/drivers/` knows an object by the name of its class.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import UNSET

from rota.errors import UsageError

if TYPE_CHECKING:
    import psycopg


class SqlAlchemyConnection(Protocol):
    """SQLAlchemy's `Session`, `scoped_session` or `Connection`, also SQLModel's."""

    def begin_nested(self) -> Any: ...
    def commit(self) -> None: ...


class AsyncSqlAlchemyConnection(Protocol):
    """SQLAlchemy's `AsyncSession`, `async_scoped_session` or `AsyncConnection`."""

    def begin_nested(self) -> Any: ...
    def commit(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """asyncpg's `Connection`, or a connection that a pool has lent."""

    def is_in_transaction(self) -> bool: ...
    def transaction(self) -> Any: ...


class DjangoConnection(Protocol):
    """One of `django.db.connections`."""

    @property
    def alias(self) -> str: ...
    @property
    def in_atomic_block(self) -> bool: ...


if TYPE_CHECKING:
    Connection: TypeAlias = psycopg.Connection[Any] | SqlAlchemyConnection | DjangoConnection | str
    """A connection of plain code; a text is the alias of a database of Django's."""
    AsyncConnection: TypeAlias = (
        psycopg.AsyncConnection[Any] | AsyncSqlAlchemyConnection | AsyncpgConnection
    )
    """A connection of an event loop."""
    AnyConnection: TypeAlias = Connection | AsyncConnection
else:
    Connection = AsyncConnection = AnyConnection = Any


def read_connection(given: Any) -> Any:
    """Return the connection of a call that enqueues; None: it names none. Raises UsageError for
    None: a session that is None by mistake would put the job outside of its transaction."""
    if given is None:
        raise UsageError(
            "the connection is None, so the job would not be in your transaction; to commit it at "
            "once, on a connection of the App's, leave the connection out"
        )
    return None if given is UNSET else given
