"""The drivers, one small file each, and the choice of a driver for the caller's connection.

The class names of a connection and its bases decide. Only psycopg is imported here: a caller with
another library's connection has imported that library.
"""

# ruff: noqa: PLC0415 - a driver is imported when a connection of its library is there
from __future__ import annotations

from typing import Any

from rota.errors import UsageError
from rota.store.driver import AsyncDriver, Driver
from rota.store.drivers.psycopg3 import AsyncPsycopgDriver, PsycopgDriver

_PLAIN = {
    "psycopg.Connection": "psycopg",
    "sqlalchemy.orm.session.Session": "sqlalchemy",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy scoped",
    "sqlalchemy.engine.base.Connection": "sqlalchemy",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django",
    "django.utils.connection.ConnectionProxy": "django proxy",
    "builtins.str": "django alias",
}
_ASYNC = {
    "psycopg.AsyncConnection": "psycopg",
    "asyncpg.connection.Connection": "asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy scoped",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy",
}
_LENDERS = {
    "sqlalchemy.engine.base.Engine": "open a Session or a Connection of it",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "open an AsyncSession or a connection of it",
    "sqlalchemy.orm.session.sessionmaker": "call it, and pass the Session",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "call it, and pass the AsyncSession",
    "asyncpg.pool.Pool": "acquire a connection of it",
    "psycopg_pool.pool.ConnectionPool": "take a connection of it",
    "psycopg_pool.pool_async.AsyncConnectionPool": "take a connection of it",
}
"""Objects that callers pass instead of a connection, and what to do instead."""
_KNOWN = (
    "psycopg's Connection, SQLAlchemy's Session or Connection, or one of Django's connections or "
    "its alias"
)
_KNOWN_ASYNC = "psycopg's or asyncpg's connection, or SQLAlchemy's AsyncSession or AsyncConnection"


def find_driver(connection: Any) -> Driver:
    """Return the driver for a connection of plain code. Raises UsageError."""
    match _recognize(connection, _PLAIN):
        case "psycopg":
            return PsycopgDriver(connection)
        case "sqlalchemy" | "sqlalchemy scoped" as kind:
            from rota.store.drivers.sqlalchemy import SqlAlchemyDriver

            return SqlAlchemyDriver(connection() if kind.endswith("scoped") else connection)
        case "django" | "django proxy" as kind:
            from rota.store.drivers.django import DjangoDriver

            # The proxy `django.db.connection` only looks up the thread's connection.
            return (
                DjangoDriver.find(connection.alias)
                if kind.endswith("proxy")
                else DjangoDriver(connection)
            )
        case "django alias":
            return _find_alias(connection)
    if is_async(connection):
        raise UsageError(
            f"{_name(connection)} belongs to an event loop: await the a… call, as in "
            "`await mail.using(connection=…).aenqueue(…)`"
        )
    raise UsageError(_refuse(connection, _KNOWN))


def find_async_driver(connection: Any) -> AsyncDriver:
    """Return the driver for a connection of an event loop. Raises UsageError."""
    match _recognize(connection, _ASYNC):
        case "psycopg":
            return AsyncPsycopgDriver(connection)
        case "asyncpg":
            from rota.store.drivers.asyncpg import AsyncpgDriver

            return AsyncpgDriver(connection)
        case "sqlalchemy" | "sqlalchemy scoped" as kind:
            from rota.store.drivers.sqlalchemy import AsyncSqlAlchemyDriver

            return AsyncSqlAlchemyDriver(connection() if kind.endswith("scoped") else connection)
    plain = _recognize(connection, _PLAIN)
    if plain is not None and plain.startswith("django"):
        raise UsageError(
            "Django's connections belong to threads, also in async code: call "
            "`await sync_to_async(mail.using(connection=…).enqueue)(…)`, in the same function as "
            "your other writes of the transaction"
        )
    if plain is not None:
        raise UsageError(
            f"{_name(connection)} is plain, and this call is async: pass {_KNOWN_ASYNC}"
        )
    raise UsageError(_refuse(connection, _KNOWN_ASYNC))


def is_async(connection: Any) -> bool:
    """Whether a connection belongs to an event loop."""
    return _recognize(connection, _ASYNC) is not None


def _recognize(connection: object, kinds: dict[str, str]) -> str | None:
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__)
    return next((kinds[name] for name in names if name in kinds), None)


def _find_alias(alias: str) -> Driver:
    if "://" in alias:
        raise UsageError("connection must be an open connection, not a URL, which is not shown")
    try:
        from rota.store.drivers.django import DjangoDriver
    except ModuleNotFoundError as error:
        raise UsageError(
            f"connection is the text {alias!r}: the alias of a database of Django's, and "
            f"{error.name} is not installed"
        ) from None
    return DjangoDriver.find(alias)


def _refuse(connection: object, known: str) -> str:
    instead = _recognize(connection, _LENDERS)
    advice = "" if instead is None else f"; {instead}"
    return f"connection must be {known} here, not {_name(connection)}{advice}"


def _name(connection: object) -> str:
    # The module counts too, because many libraries have a class Connection.
    kind = type(connection)
    inside = kind.__module__ != "builtins"
    return f"{kind.__module__}.{kind.__qualname__}" if inside else kind.__qualname__
