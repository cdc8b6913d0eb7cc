"""Connections and the two drivers, sync and async.

A store operation is a generator: it yields a `Query` and is sent the rows. A driver runs it, so that each operation is written once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from rota.errors import ConfigurationError, UsageError
from rota.failure import message
from rota.store.patience import within
from rota.store.pools import Pools
from rota.store.statements import Statements
from rota.store.trouble import translate, translated

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """One statement of an operation: the name of its SQL file and its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    """What is run instead of the file: a command that the database has put together, names and all. It returns no rows."""


Operation = Generator[Query, list[Row], T]

CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 10
"""Nothing that Rota runs by itself may wait for ever; its statements take milliseconds."""
ANSWER_S = STATEMENT_TIMEOUT_S + 5.0
"""A connection of a loop that brings no answer for so long is cut. The server's own timeout comes first, where the server can be heard; this is for
when it cannot: behind a proxy or a firewall that swallows what is sent, while the kernels on either side believe in the connection."""
UNACKNOWLEDGED_S = 15
"""After so long without a sign from the other kernel the connection is broken, in plain code as well; on Linux."""


class Database:
    """One schema of one database: what an App and its workers connect to. Connects to nothing until used; safe to create before a fork."""

    def __init__(self, url: str, schema: str = "rota", *, notify: bool = True) -> None:
        try:
            self._conninfo = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(f"the database URL cannot be read: {message(error)}") from None
        self._url = url
        self.statements = Statements(schema)
        self.schema = schema
        self.notify = notify
        self._pools = Pools(lambda: self.conninfo("client"), wait_s=CONNECT_TIMEOUT_S, prepares=notify)

    def unsettled(self) -> Database:
        """The same database, connected to without settings of a session and without LISTEN, as behind a transaction pooler."""
        return Database(self._url, self.schema, notify=False)

    def conninfo(self, role: str, *, statement_timeout_s: float = STATEMENT_TIMEOUT_S, lock_timeout_s: float = LOCK_TIMEOUT_S) -> str:
        """The connection string of Rota's own connections; `role` is what they are called in pg_stat_activity."""
        asked = (
            f"-c statement_timeout={statement_timeout_s * 1000:.0f}ms -c lock_timeout={lock_timeout_s * 1000:.0f}ms -c timezone=UTC -c jit=off "
            "-c default_transaction_isolation=read\\ committed"
        )
        given = dict(self._conninfo)
        if self.notify:  # a transaction pooler refuses startup options
            given["options"] = f"{given.get('options') or ''} {asked}".strip()
        given.setdefault("connect_timeout", str(CONNECT_TIMEOUT_S))
        given.setdefault("keepalives_idle", "10")
        given.setdefault("keepalives_interval", "5")
        given.setdefault("keepalives_count", "3")
        given.setdefault("tcp_user_timeout", str(UNACKNOWLEDGED_S * 1000))
        given["client_encoding"] = "UTF8"  # texts of jobs are of every language, whatever PGCLIENTENCODING says here
        given["application_name"] = f"rota {role}"[:63]
        return make_conninfo("", **given)

    @property
    def prepare_threshold(self) -> int | None:
        """After how many runs a statement is prepared: at once, but never behind a transaction pooler."""
        return 0 if self.notify else None

    async def connect(
        self, role: str, *, statement_timeout_s: float = STATEMENT_TIMEOUT_S, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> psycopg.AsyncConnection:
        """Open a connection of Rota's own, in autocommit. Raises DatabaseUnavailable."""
        with translated():
            conninfo = self.conninfo(role, statement_timeout_s=statement_timeout_s, lock_timeout_s=lock_timeout_s)
            return await psycopg.AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=self.prepare_threshold)

    @contextmanager
    def connected(self, role: str) -> Iterator[psycopg.Connection]:
        """Open one connection, in autocommit, for a block. Unlike the pool, which goes on trying, it says at once why it cannot. It is too short to
        prepare statements, which a pooler that nobody has told of might not bear."""
        with translated(), psycopg.connect(self.conninfo(role), autocommit=True, prepare_threshold=None) as connection:
            yield connection

    # Operations, on a connection of the pool or on the caller's

    def run(self, operation: Operation[T], connection: Any = None, *, atomic: bool = False) -> T:
        """Run an operation; `atomic`: in one transaction, also on an autocommit connection."""
        if connection is not None:
            if not isinstance(connection, psycopg.Connection):
                raise UsageError(f"{_wrong('psycopg.Connection', connection)}; an async one goes with the a… calls")
            with _encodable(connection):
                return self.drive(connection, operation, atomic)
        with translated(), self._pools.connection() as own:
            return self.drive(own, operation, atomic)

    async def arun(self, operation: Operation[T], connection: Any = None, *, atomic: bool = False) -> T:
        """Run an operation from a loop."""
        if connection is not None:
            if not isinstance(connection, psycopg.AsyncConnection):
                raise UsageError(_wrong("psycopg.AsyncConnection", connection))
            with _encodable(connection):
                return await self.adrive(connection, operation, atomic)
        with translated():
            async with self._pools.aconnection() as own:
                return await self.adrive(own, operation, atomic, answer_s=ANSWER_S)

    def drive(self, connection: psycopg.Connection, operation: Operation[T], atomic: bool = False) -> T:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        with connection.transaction() if atomic and _needs_transaction(connection) else nullcontext():
            try:
                query = next(operation)
                while True:
                    try:
                        if query.command is None:
                            cursor.execute(self.statements[query.name], query.params, binary=True)
                            rows = cursor.fetchall()
                        else:
                            cursor.execute(query.command.encode())
                            rows = []
                    except psycopg.Error as error:
                        query = operation.throw(translate(error))
                    else:
                        query = operation.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def adrive(
        self, connection: psycopg.AsyncConnection, operation: Operation[T], atomic: bool = False, *, answer_s: float | None = None
    ) -> T:
        """As `drive`. On Rota's own connections each answer has a limit, `answer_s`; a caller's connection is the caller's."""
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        async with connection.transaction() if atomic and _needs_transaction(connection) else nullcontext():
            try:
                query = next(operation)
                while True:
                    try:
                        with nullcontext() if answer_s is None else within(connection, answer_s):
                            if query.command is None:
                                await cursor.execute(self.statements[query.name], query.params, binary=True)
                                rows = await cursor.fetchall()
                            else:
                                await cursor.execute(query.command.encode())
                                rows = []
                    except psycopg.Error as error:
                        query = operation.throw(translate(error))
                    else:
                        query = operation.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the sync pool. The next use opens it again."""
        self._pools.close()

    async def aclose(self) -> None:
        """Close the pool of the running loop, and the sync one."""
        await self._pools.aclose()


def _wrong(wanted: str, given: object) -> str:
    # Of which module, for many drivers and libraries have a Connection.
    kind = type(given)
    if kind.__module__ == "builtins":
        return f"connection must be a {wanted} here, not {kind.__qualname__}"
    inside = "" if kind.__module__ == "psycopg" else "; a library that wraps psycopg's, as SQLAlchemy does, has it inside"
    return f"connection must be a {wanted} here, not {kind.__module__}.{kind.__qualname__}{inside}"


@contextmanager
def _encodable(connection: psycopg.Connection | psycopg.AsyncConnection) -> Iterator[None]:
    """On a connection of the caller's, with the encoding that the caller chose."""
    try:
        yield
    except UnicodeEncodeError as error:
        encoding = connection.info.parameter_status("client_encoding")
        cannot = f"which has no {error.object[error.start : error.end][:20]!r}"
        raise UsageError(
            f"the connection's client_encoding is {encoding}, {cannot}; the statement was not sent. SET client_encoding TO 'UTF8'"
        ) from None


def _needs_transaction(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    return connection.autocommit and connection.info.transaction_status == pq.TransactionStatus.IDLE
