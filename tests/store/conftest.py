"""An App and a second connection to the test's own database, and a connection to a shared one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

import rota
from rota.store.db import Border
from rota.store.driver import Operation, drive
from rota.store.drivers.psycopg3 import PsycopgDriver
from rota.testing.bound import BoundDatabase
from tests.support.databases import Databases
from tests.support.role import login_role
from tests.support.server import PostgresServer

T = TypeVar("T")


class Shared(psycopg.Connection[TupleRow]):
    """A connection within a transaction that a statement which fails leaves open, as in autocommit:
    each has a savepoint of its own, unless the test has opened a transaction.
    """

    def execute(self, *args: Any, **options: Any) -> psycopg.Cursor[TupleRow]:
        if self._num_transactions > 1:
            return super().execute(*args, **options)
        with self.transaction():
            return super().execute(*args, **options)


class SharedDatabase(BoundDatabase):
    """A database whose operations all run on a shared connection, each in a savepoint where one of
    the pool would be in a transaction.
    """

    def run(self, operation: Operation[T], connection: Any = None, **options: Any) -> T:
        if connection is not None:
            return super().run(operation, connection, **options)
        with Border(is_own=True), self.connection.transaction():
            return drive(PsycopgDriver(self.connection), operation, self.statements)

    async def arun(self, operation: Operation[T], connection: Any = None, **options: Any) -> T:
        return self.run(operation, connection, **options)


@pytest.fixture(scope="session")
def _shared(server: PostgresServer, databases: Databases) -> Iterator[Shared]:
    with (
        databases.lend() as name,
        Shared.connect(server.url(name), autocommit=True, prepare_threshold=None) as connection,
    ):
        yield connection


@pytest.fixture
def shared(_shared: Shared) -> Iterator[psycopg.Connection[TupleRow]]:
    """Yield a connection to a migrated database that tests share. What a test does is rolled back,
    and it costs an eighth of a database of its own.

    For tests of one session that commit nothing: no NOTIFY arrives, and no lock is let go. And for
    tests that count no blocks and insert no thousands of rows: what is rolled back stays on its
    pages, and ids go on from test to test.
    """
    with _shared.transaction(force_rollback=True):
        yield _shared
        _shared._notice_handlers.clear()
        status = _shared.info.transaction_status
        assert status is TransactionStatus.INTRANS, f"{status.name}: ask for `connection` instead"


@pytest.fixture
def app(request: pytest.FixtureRequest) -> Iterator[rota.App]:
    """Yield an App without job types, its release called "test"; its database is `shared` if the
    test asks for that, otherwise `database`.
    """
    if "shared" in request.fixturenames:
        app = rota.App(release="test")
        app._opened = SharedDatabase("rota", request.getfixturevalue("shared"))
    else:
        app = rota.App(request.getfixturevalue("database"), release="test")
    yield app
    app.close()


@pytest.fixture
def role(admin: psycopg.Connection[TupleRow], database: str) -> Iterator[str]:
    """Yield the name of a role that may log in and use the schema of `database`, and no more."""
    with login_role(admin, database, "grant usage on schema rota to {}") as name:
        yield name


@pytest.fixture
def second(database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Yield a second connection to `database`, also in autocommit."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
