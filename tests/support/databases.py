"""The tests' databases: one each, made and dropped while other tests run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import LiteralString, Self
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.errors import ObjectInUse
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.rows import TupleRow

from tests.support.wait import eventually


def wait_until_unused(name: str, admin: psycopg.Connection[TupleRow]) -> None:
    """Wait until a database has no sessions.

    A closed session ends a moment later, and the server waits 5 s for it before it copies, renames
    or drops the database.
    """
    sessions = "select count(*) from pg_stat_activity where datname = %s"
    eventually(
        lambda: admin.execute(sessions, [name]).fetchone() == (0,),
        what=f"no session uses {name}",
    )


class Databases:
    """Copies of one template, for one process.

    The copy for the next test is made while a test runs. A test's copy is dropped when the next
    test has ended: by then the sessions of its clients are gone. A server that still finds one
    looks again only after a tenth of a second.
    """

    def __init__(self, url: str, template: str) -> None:
        self._template = template
        self._making, self._dropping = _Aside(url), _Aside(url)
        # Half the CPU of a copy through the log.
        self._create: LiteralString = "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy"
        self._next: str | None = None
        self._last: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._making.close()
        self._dropping.close()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The name of a database for one test."""
        name, self._next = self._next or self._make(), None  # a refused one belongs to no test
        self._making.wait()
        self._next = self._make()
        yield name
        if self._last is not None:
            self._drop(self._last)
        self._last = name

    def _drop(self, name: str) -> None:
        # A session of the database dropped last did not end in time: it stays until the server
        # goes.
        with suppress(ObjectInUse):
            self._dropping.wait()
        self._dropping.begin("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _make(self) -> str:
        name = f"t_{uuid4().hex[:12]}"
        self._making.begin(self._create, name, self._template)
        return name


class _Aside:
    """A session of the superuser that works while its caller does something else."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[TupleRow] = psycopg.connect(url, autocommit=True)

    def begin(self, statement: LiteralString, *names: str) -> None:
        self.wait()
        self._connection.pgconn.send_query(
            sql.SQL(statement).format(*map(sql.Identifier, names)).as_bytes(self._connection)
        )

    def wait(self) -> None:
        """Raises psycopg.Error when the server has refused what was begun last."""
        while (result := self._connection.pgconn.get_result()) is not None:
            if result.status != ExecStatus.COMMAND_OK:
                state = result.error_field(DiagnosticField.SQLSTATE) or b""
                raise psycopg.errors.lookup(state.decode())(result.get_error_message())

    def close(self) -> None:
        self._connection.close()
