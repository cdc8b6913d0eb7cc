"""Read-only queries about a database, each a short transaction with a limit of two seconds.

A check must neither harm the database nor run the code of others. Often a superuser asks, and where
every role may create functions in `public`, a foreign operator can fit better than PostgreSQL's
own. So the `search_path` of these transactions has nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from rota.errors import ConfigurationError
from rota.model.failure import message, one_line
from rota.store.db import Database
from rota.store.driver import Driver, Operation, Query, drive
from rota.store.drivers.own import translate_errors, wait_for_notification
from rota.store.drivers.psycopg3 import PsycopgDriver
from rota.store.errors import (
    ObjectMissing,
    PrivilegeMissing,
    RowLocked,
    ServerTrouble,
    StoreError,
    is_of_pooler,
    translate_for_app,
    unavailable,
)
from rota.store.ops.read import table

if TYPE_CHECKING:
    import psycopg

QUERY_S = 2.0
NOTIFY_S = 2.0
"""Longest time for a NOTIFY to arrive, in seconds."""
TRIES = 5
"""Comparisons of two connections before each counts as having its own session."""


class QueryFailed(Exception):
    """The database does not answer the query. Nothing was changed; the connection stays usable."""


class QueryForbidden(QueryFailed):
    """The role lacks a privilege for this query."""


class Probe:
    def __init__(self, database: Database, connection: psycopg.Connection) -> None:
        self.database = database
        self._connection = connection
        self._driver = PsycopgDriver(connection)

    def facts(self, name: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run a statement of one JSON. Raises QueryFailed, SchemaMissing, DatabaseUnavailable."""
        facts: dict[str, Any] = msgspec.json.decode(self._run(_facts(name, dict(params or {}))))
        return facts

    def rows(
        self,
        name: str,
        params: Mapping[str, Any],
        columns: tuple[str, ...],
    ) -> list[dict[str, Any]]:
        """Run a statement that returns rows. Raises as `facts`."""
        return self._run(table(name, dict(params), columns=columns))  # type: ignore[no-any-return]

    def measure_round_trip_s(self, count: int = 5) -> float:
        took = []
        with translate_errors():
            for _ in range(count):
                before = time.monotonic()
                self._driver.run(b"select 1", None)
                took.append(time.monotonic() - before)
        return min(took)

    def shares_sessions(self) -> bool:
        """Return whether another connection meets this probe's session, as a transaction pooler
        lends a session to the next caller. Nothing is left behind in the session."""
        with self.database.open_connection("cli") as connection, translate_errors():
            other = PsycopgDriver(connection)
            for _ in range(TRIES):
                mine, others = (
                    {_backend(driver), _backend(driver)} for driver in (self._driver, other)
                )
                if mine & others or len(mine) > 1:
                    return True
        return False

    def measure_notify_s(self) -> float | None:
        """Return the seconds that a NOTIFY takes between two connections; None: over NOTIFY_S."""
        channel = f'"{self.database.schema}.doctor.{uuid4().hex[:12]}"'.encode()
        with self.database.open_connection("cli") as connection, translate_errors():
            other = PsycopgDriver(connection)
            other.run(b"listen " + channel, None)
            try:
                before = time.monotonic()
                self._driver.run(b"notify " + channel, None)
                has_arrived = wait_for_notification(connection, NOTIFY_S)
                return time.monotonic() - before if has_arrived else None
            finally:
                other.run(b"unlisten " + channel, None)

    def _run(self, operation: Operation[Any]) -> Any:
        ms = f"{QUERY_S * 1000:.0f}"
        # For this transaction: behind a pooler the session is another client's afterwards.
        limits = f"set local statement_timeout = {ms}; set local lock_timeout = {ms}"
        path = "set local search_path = pg_catalog, pg_temp"
        try:
            with self._driver.transaction():
                self._driver.run(f"set transaction read only; {limits}; {path}".encode(), None)
                return drive(self._driver, operation, self.database.statements)
        except StoreError as error:
            raise _say(error) from None
        except self._driver.errors as error:
            raise _say(self._driver.translate(error)) from None


def _say(error: StoreError) -> Exception:
    match error:
        case ObjectMissing():
            return translate_for_app(error, is_own=True)
        case PrivilegeMissing():
            public = translate_for_app(error, is_own=True)
            return QueryForbidden(f"not permitted: {message(public)}")
        case RowLocked():
            return QueryFailed(f"no answer within {QUERY_S:.0f} s")
        case ServerTrouble():
            return unavailable(error)
    return QueryFailed(f"the database refuses: {one_line(str(error))}")


@contextmanager
def open_probe(database: Database) -> Iterator[Probe]:
    """Connect for a block of queries. Raises ConfigurationError, DatabaseUnavailable."""
    with database.open_connection("cli") as connection:
        yield Probe(database, connection)


@contextmanager
def open_any_probe(database: Database) -> Iterator[tuple[Probe, ConfigurationError | None]]:
    """Connect for a block of queries, even through a pooler that refuses Rota's session settings.
    Yields the pooler's error as well; None: there was none."""
    refusal = None
    if database.notify:
        try:
            with database.open_connection("cli"):
                pass
        except ConfigurationError as error:
            if not is_of_pooler(error):
                raise
            refusal, database = error, database.strip_settings()
    with open_probe(database) as probe:
        yield probe, refusal


def _facts(name: str, params: dict[str, Any]) -> Operation[str]:
    rows = yield Query(name, params)
    if not rows:  # a function of the schema was changed by hand
        raise QueryFailed(f"the database has no answer to {name}")
    return rows[0][0]  # type: ignore[no-any-return]


def _backend(driver: Driver) -> int:
    return int(driver.run(b"select pg_catalog.pg_backend_pid()", None)[0][0])
