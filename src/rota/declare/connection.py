"""The connections of other libraries that calls of Rota take, for type checkers.

Nothing is imported here when a program runs: none of these libraries needs to be installed, and a
driver of `store/drivers/` knows an object by the name of its class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncpg.pool
    import psycopg
    import sqlalchemy
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.utils.connection import ConnectionProxy

    Connection: TypeAlias = (
        psycopg.Connection[Any]
        | sqlalchemy.Connection
        | sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[Any]
        | BaseDatabaseWrapper
        | ConnectionProxy[Any]
        | str
    )
    """A connection of plain code; a text is the alias of a database of Django's."""
    AsyncConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | asyncpg.Connection
        | asyncpg.pool.PoolConnectionProxy
        | sqlalchemy.ext.asyncio.AsyncConnection
        | sqlalchemy.ext.asyncio.AsyncSession
        | sqlalchemy.ext.asyncio.async_scoped_session[Any]
    )
    """A connection of an event loop."""
    AnyConnection: TypeAlias = Connection | AsyncConnection
else:
    Connection = AsyncConnection = AnyConnection = Any
