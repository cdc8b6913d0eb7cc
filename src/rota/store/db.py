"""Connections and the two drivers, sync and async.

A store operation is a generator: it yields a `Query` and is sent the rows. A driver runs it, so that each operation is written once.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from rota.errors import ConfigurationError, DatabaseUnavailable, PayloadError, RotaError, SchemaError, SchemaMissing, UsageError
from rota.failure import message
from rota.store.statements import Statements

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

POOL_MAX = 4
"""Connections an App holds at most for enqueueing and reading, in each of its two pools (sync, async)."""
CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 10
"""Nothing that Rota runs by itself may wait for ever; its statements take milliseconds."""


class Database:
    """One schema of one database: what an App and its workers connect to. Connects to nothing until used; safe to create before a fork."""

    def __init__(self, url: str, schema: str = "rota", *, notify: bool = True) -> None:
        try:
            self._conninfo = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(f"the database URL cannot be read: {message(error)}") from None
        self.statements = Statements(schema)
        self.schema = schema
        self.notify = notify
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: ConnectionPool[psycopg.Connection] | None = None
        self._async_pools: dict[int, tuple[Any, AsyncConnectionPool[psycopg.AsyncConnection]]] = {}

    def conninfo(self, role: str, timeout_s: int = STATEMENT_TIMEOUT_S) -> str:
        """The connection string of Rota's own connections; `role` is what they are called in pg_stat_activity."""
        asked = (
            f"-c statement_timeout={timeout_s}s -c lock_timeout={min(timeout_s, LOCK_TIMEOUT_S)}s -c timezone=UTC -c jit=off "
            "-c default_transaction_isolation=read\\ committed"
        )
        given = dict(self._conninfo)
        if self.notify:  # a transaction pooler refuses startup options
            given["options"] = f"{given.get('options') or ''} {asked}".strip()
        given.setdefault("connect_timeout", str(CONNECT_TIMEOUT_S))
        given.setdefault("keepalives_idle", "10")
        given.setdefault("keepalives_interval", "5")
        given.setdefault("keepalives_count", "3")
        given["application_name"] = f"rota {role}"[:63]
        return make_conninfo("", **given)

    @property
    def prepare_threshold(self) -> int | None:
        """After how many runs a statement is prepared: at once, but never behind a transaction pooler."""
        return 0 if self.notify else None

    async def connect(self, role: str, timeout_s: int = STATEMENT_TIMEOUT_S) -> psycopg.AsyncConnection:
        """Open a connection of Rota's own, in autocommit. Raises DatabaseUnavailable."""
        with translated():
            return await psycopg.AsyncConnection.connect(
                self.conninfo(role, timeout_s), autocommit=True, prepare_threshold=self.prepare_threshold
            )

    @contextmanager
    def connected(self, role: str) -> Iterator[psycopg.Connection]:
        """Open one connection, in autocommit, for a block. Unlike the pool, which goes on trying, it says at once why it cannot."""
        with translated(), psycopg.connect(self.conninfo(role), autocommit=True) as connection:
            yield connection

    # Operations, on a connection of the pool or on the caller's

    def run(self, operation: Operation[T], connection: Any = None, *, atomic: bool = False) -> T:
        """Run an operation; `atomic`: in one transaction, also on an autocommit connection."""
        if connection is not None:
            if not isinstance(connection, psycopg.Connection):
                raise UsageError(
                    f"connection must be a psycopg.Connection here, not {type(connection).__name__}; an async one goes with the a… calls"
                )
            return self.drive(connection, operation, atomic)
        with translated(), self._sync_pool().connection() as own:
            return self.drive(own, operation, atomic)

    async def arun(self, operation: Operation[T], connection: Any = None, *, atomic: bool = False) -> T:
        """Run an operation from a loop."""
        if connection is not None:
            if not isinstance(connection, psycopg.AsyncConnection):
                raise UsageError(f"connection must be a psycopg.AsyncConnection here, not {type(connection).__name__}")
            return await self.adrive(connection, operation, atomic)
        with translated():
            async with (await self._async_pool()).connection() as own:
                return await self.adrive(own, operation, atomic)

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
                        query = operation.throw(_translate(error))
                    else:
                        query = operation.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def adrive(self, connection: psycopg.AsyncConnection, operation: Operation[T], atomic: bool = False) -> T:
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        async with connection.transaction() if atomic and _needs_transaction(connection) else nullcontext():
            try:
                query = next(operation)
                while True:
                    try:
                        if query.command is None:
                            await cursor.execute(self.statements[query.name], query.params, binary=True)
                            rows = await cursor.fetchall()
                        else:
                            await cursor.execute(query.command.encode())
                            rows = []
                    except psycopg.Error as error:
                        query = operation.throw(_translate(error))
                    else:
                        query = operation.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    # Pools

    def _sync_pool(self) -> ConnectionPool[psycopg.Connection]:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():  # a fork must not share its parent's sockets
                self._pid = os.getpid()
                self._async_pools = {}
                # A pool would try for CONNECT_TIMEOUT_S and then not say why: a wrong password or an absent server is told here, at once.
                psycopg.connect(self.conninfo("client")).close()
                self._pool = ConnectionPool(self.conninfo("client"), open=True, check=_refuse_broken, **self._pool_options())
            return self._pool

    async def _async_pool(self) -> AsyncConnectionPool[psycopg.AsyncConnection]:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid, self._pool, self._async_pools = os.getpid(), None, {}
        self._async_pools = {key: known for key, known in self._async_pools.items() if not known[0].is_closed()}
        known = self._async_pools.get(id(loop))
        if known is None or known[0] is not loop:
            await (await psycopg.AsyncConnection.connect(self.conninfo("client"))).close()  # as in _sync_pool
            known = self._async_pools.get(id(loop))  # another task may have been faster
        if known is None or known[0] is not loop:
            pool: AsyncConnectionPool[psycopg.AsyncConnection] = AsyncConnectionPool(
                self.conninfo("client"), open=False, check=_arefuse_broken, **self._pool_options()
            )
            self._async_pools[id(loop)] = known = (loop, pool)
            await pool.open()
        return known[1]

    def _pool_options(self) -> dict[str, Any]:
        return {
            "min_size": 0,
            "max_size": POOL_MAX,
            "timeout": CONNECT_TIMEOUT_S,
            "max_idle": 60,
            "kwargs": {"autocommit": True, "prepare_threshold": 5 if self.notify else None},
        }

    def close(self) -> None:
        """Close the sync pool. The next use opens it again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    async def aclose(self) -> None:
        """Close the pool of the running loop, and the sync one."""
        known = self._async_pools.pop(id(asyncio.get_running_loop()), None)
        if known is not None:
            await known[1].close()
        self.close()


def _refuse_broken(connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
    """Let the pool replace a connection that the server closed while it was idle. No round trip: the end of a socket can be read."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        connection.pgconn.finish()  # else the pool would take it for sound
        raise psycopg.OperationalError("the server closed the connection while it was idle")


async def _arefuse_broken(connection: psycopg.AsyncConnection) -> None:
    _refuse_broken(connection)


class PartitionMissing(Exception):
    """A finish came before anybody made the day's partition; it makes it and repeats itself."""


class Link:
    """A connection of a worker's own, opened when first used and again after it broke. No statement on it takes longer than `timeout_s`."""

    def __init__(self, database: Database, role: str, timeout_s: int = STATEMENT_TIMEOUT_S) -> None:
        self._database = database
        self._role = role
        self._timeout_s = timeout_s
        self._connection: psycopg.AsyncConnection | None = None
        self._opening = asyncio.Lock()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation. After an error that leaves the connection in doubt, the next call opens a new one."""
        connection = await self.open()
        try:
            with translated():
                return await self._database.adrive(connection, operation)
        except BaseException as error:
            # Whatever interrupted it, a cancellation included: a connection that is not idle must not be used again. Nor one that answers and
            # does not serve: after a failover it leads to a server that has become read-only.
            if (
                isinstance(error, DatabaseUnavailable)
                or connection.closed
                or connection.info.transaction_status != pq.TransactionStatus.IDLE
            ):
                await self.close()
            raise

    async def open(self) -> psycopg.AsyncConnection:
        """The connection, opened if need be."""
        async with self._opening:
            if self._connection is None or self._connection.closed:
                self._connection = await self._database.connect(self._role, self._timeout_s)
            return self._connection

    async def close(self) -> None:
        """Close it; the next `run` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _needs_transaction(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    return connection.autocommit and connection.info.transaction_status == pq.TransactionStatus.IDLE


@contextmanager
def translated() -> Iterator[None]:
    """On Rota's own connections: turn "the database is not there" into DatabaseUnavailable."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise unavailable(error) from error


# A connection that is refused has no SQLSTATE, only a text; a server that writes in another language is taken for one that does not answer.
_REFUSED = ("authentication failed", "no password supplied", "no pg_hba.conf entry", 'FATAL:  role "')


def unavailable(error: Exception) -> RotaError:
    """What a failure to reach the database means for the caller."""
    if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification) or any(
        sign in str(error) for sign in _REFUSED
    ):
        return ConfigurationError(f"the database refuses the user or password of the URL: {_first_line(error)}")
    if isinstance(error, psycopg.errors.InvalidCatalogName) or ("database" in str(error) and "does not exist" in str(error)):
        return ConfigurationError(f"the URL names a database that is not there: {_first_line(error)}")
    if "unsupported startup parameter" in str(error):
        return ConfigurationError(
            f"a pooler refuses Rota's session settings: use App(notify=False) behind it, and migrate without it ({_first_line(error)})"
        )
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable(f"no connection to the database within {CONNECT_TIMEOUT_S} s: {_first_line(error)}")
    return DatabaseUnavailable(f"the database does not answer: {_first_line(error)}")


def _translate(error: psycopg.Error) -> Exception:
    """The same error in Rota's words where it has some; else as it is."""
    constraint = error.diag.constraint_name or ""
    if isinstance(error, psycopg.errors.CheckViolation) and constraint.startswith("job_payload_"):
        why = "larger than the limit; store it elsewhere and pass a reference" if constraint.endswith("small") else "not a JSON object"
        return PayloadError("?", None, why).with_traceback(error.__traceback__)
    if isinstance(error, psycopg.errors.CheckViolation) and not constraint and error.diag.table_name in ("job_history", "attempt"):
        return PartitionMissing(_first_line(error))
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction | psycopg.errors.InvalidSchemaName):
        return SchemaMissing(f"the database has no Rota schema, or an older one: run `rota migrate` ({_first_line(error)})")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SchemaError(f"the database role lacks a privilege: {_first_line(error)}; docs/sql-contract.md lists the GRANTs of each role")
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
