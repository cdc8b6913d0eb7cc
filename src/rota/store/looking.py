"""How a look at the database is taken: each its own short transaction that reads only, given up after two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
from psycopg import sql

from rota.errors import ConfigurationError, SchemaError, SchemaMissing
from rota.failure import message
from rota.store.db import Database, Operation, Query
from rota.store.ops.read import table
from rota.store.trouble import is_of_pooler, is_waiting, translated, unavailable

LOOK_S = 2.0
"""The longest that one look may take: whoever asks how a database is must not be what ails it."""
HEAR_S = 2.0
"""How long a NOTIFY to oneself may take."""
TRIES = 5
"""How often two connections are compared before they are taken to have a session each."""


class CannotLook(Exception):
    """The database does not say: why not."""


class MayNotLook(CannotLook):
    """Nor does it to anybody with this role's privileges."""


class Look:
    """One connection, for a block of looks."""

    def __init__(self, database: Database, connection: psycopg.Connection) -> None:
        self.database = database
        self._connection = connection

    def facts(self, name: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run a statement that returns its facts as JSON. Raises CannotLook, SchemaMissing, DatabaseUnavailable."""
        return msgspec.json.decode(self._run(_facts(name, dict(params or {}))))  # type: ignore[no-any-return]

    def rows(self, name: str, params: Mapping[str, Any], columns: tuple[str, ...]) -> list[dict[str, Any]]:
        """Run a statement that returns rows. Raises as `facts`."""
        return self._run(table(name, dict(params), columns=columns))  # type: ignore[no-any-return]

    def round_trips_s(self, count: int = 5) -> float:
        """Return the shortest of some round trips, in seconds."""
        took = []
        with translated():
            for _ in range(count):
                before = time.monotonic()
                self._connection.execute("select 1")
                took.append(time.monotonic() - before)
        return min(took)

    def shares_sessions(self) -> bool:
        """Whether another connection meets the session of this one, which is open all the while: as behind a transaction pooler, which lends one to
        whoever asks next. Nothing is left in it."""
        with self.database.connected("cli") as other, translated():
            for _ in range(TRIES):
                mine, others = ({_backend(one), _backend(one)} for one in (self._connection, other))
                if mine & others or len(mine) > 1:
                    return True
        return False

    def hears_after_s(self) -> float | None:
        """How long a NOTIFY takes from one connection to another, in seconds; None when it has not come within two. Nobody else listens there."""
        channel = sql.Identifier(f"{self.database.schema}.doctor.{uuid4().hex[:12]}")
        with self.database.connected("cli") as other, translated():
            other.execute(sql.SQL("listen {}").format(channel))
            try:
                before = time.monotonic()
                self._connection.execute(sql.SQL("notify {}").format(channel))
                heard = list(other.notifies(timeout=HEAR_S, stop_after=1))
                return time.monotonic() - before if heard else None
            finally:
                other.execute(sql.SQL("unlisten {}").format(channel))

    def _run(self, operation: Operation[Any]) -> Any:
        try:
            with self._connection.transaction():
                # Set for this transaction and not for the session, which behind a pooler is somebody else's afterwards.
                self._connection.execute(
                    f"set transaction read only; set local statement_timeout = {LOOK_S * 1000:.0f}; set local lock_timeout = {LOOK_S * 1000:.0f}"
                )
                return self.database.drive(self._connection, operation)
        except SchemaMissing:
            raise
        except SchemaError as error:
            raise MayNotLook(f"not allowed to look: {message(error)}") from None
        except psycopg.Error as error:
            if is_waiting(error):
                raise CannotLook(f"no answer within {LOOK_S:.0f} s") from None
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                raise unavailable(error) from None
            raise CannotLook(f"the database refuses: {message(error)}") from None


@contextmanager
def looking(database: Database) -> Iterator[Look]:
    """Connect for a block of looks. Raises ConfigurationError, DatabaseUnavailable."""
    with database.connected("cli") as connection:
        yield Look(database, connection)


@contextmanager
def looking_somehow(database: Database) -> Iterator[tuple[Look, ConfigurationError | None]]:
    """Connect for a block of looks, also through a pooler that refuses Rota's session settings: then with what it says of them."""
    refusal = None
    if database.notify:
        try:
            with database.connected("cli"):
                pass
        except ConfigurationError as error:
            if not is_of_pooler(error):
                raise
            refusal, database = error, database.unsettled()
    with looking(database) as look:
        yield look, refusal


def _facts(name: str, params: dict[str, Any]) -> Operation[str]:
    return (yield Query(name, params))[0][0]  # type: ignore[no-any-return]


def _backend(connection: psycopg.Connection) -> int:
    row = connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])
