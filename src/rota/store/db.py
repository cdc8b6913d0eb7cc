"""One database: its settings, its connections, and how operations run on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec

from rota.errors import UsageError
from rota.store.driver import Operation, Translator, adrive, drive
from rota.store.drivers import find_async_driver, find_driver, own
from rota.store.drivers.own import Deadline, OwnConnection
from rota.store.errors import ServerTrouble, StoreError, is_away, translate_for_app
from rota.store.pools import Pools
from rota.store.statements import Statements

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 10
"""Seconds. No statement of Rota's own may wait for ever; they take milliseconds."""
ANSWER_S = STATEMENT_TIMEOUT_S + 5.0
"""Longest wait of an event loop for an answer; then the connection is cut.

The server's own timeout comes first, if the server can be reached. This limit is for a proxy or a
firewall that swallows packets.
"""


class Patience(msgspec.Struct, frozen=True):
    """How long a call on Rota's own connections waits, and what its error says if in doubt."""

    answer_s: float | None = None
    """Longest wait for one answer, in seconds; None: ANSWER_S."""
    doubt: str | None = None
    """Added to an error after which the work may have been done; None: nothing."""


PATIENT = Patience()


class RunOptions(TypedDict, total=False):
    atomic: bool
    joins: str | None
    patience: Patience


HANDLER_IDLE_S = 60
"""Seconds that a transaction of a handler, opened by Rota, may idle between two statements."""
UNACKNOWLEDGED_S = 15
"""TCP_USER_TIMEOUT (Linux): seconds after which an unacknowledged connection breaks."""


class Database:
    """One schema of one database: what an App and its workers connect to. It connects when it is
    first used, so it is safe to create before a fork."""

    def __init__(self, url: str, schema: str = "rota", *, notify: bool = True) -> None:
        self._conninfo = own.parse_url(url)
        self.url = url
        self.statements = Statements(schema)
        self.schema = schema
        self.notify = notify
        self._pools = Pools(
            lambda: self.conninfo("client"), wait_s=CONNECT_TIMEOUT_S, prepares=notify
        )

    def strip_settings(self) -> Database:
        """Return the same database without session settings and LISTEN, as behind a pooler."""
        return Database(self.url, self.schema, notify=False)

    def conninfo(
        self,
        role: str,
        *,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> str:
        """Return the connection string of Rota's own connections; `role` is their server-side
        name."""
        asked = (
            f"-c statement_timeout={statement_timeout_s * 1000:.0f}ms -c "
            f"lock_timeout={lock_timeout_s * 1000:.0f}ms -c timezone=UTC -c jit=off "
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
        # Texts of jobs are in every language, whatever PGCLIENTENCODING says here.
        given["client_encoding"] = "UTF8"
        given["application_name"] = f"rota {role}"[:63]
        return own.format_conninfo(given)

    @property
    def prepare_threshold(self) -> int | None:
        """Runs after which a statement is prepared: at once; never behind a transaction pooler."""
        return 0 if self.notify else None

    async def connect(
        self,
        role: str,
        *,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> OwnConnection:
        """Open a connection of Rota's own, in autocommit. Raises the driver's errors."""
        timeouts = {"statement_timeout_s": statement_timeout_s, "lock_timeout_s": lock_timeout_s}
        return await own.open_async(self.conninfo(role, **timeouts), self.prepare_threshold)

    @contextmanager
    def open_connection(self, role: str) -> Iterator[psycopg.Connection]:
        """Open a connection, in autocommit, for a block. Unlike the pool, which tries again, it
        says at once why it cannot."""
        with own.translate_errors(), own.open_plain(self.conninfo(role)) as connection:
            yield connection

    @contextmanager
    def open_transaction(self) -> Iterator[psycopg.Connection]:
        """Open a connection with a transaction for a handler's block, and commit it afterwards. Its
        statements have no time limit: the attempt is limited."""
        with own.translate_errors():
            connection = own.open_plain(self._handler_conninfo())
        with connection, connection.transaction():
            connection.execute(_IDLE)
            yield connection

    @asynccontextmanager
    async def aopen_transaction(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """As `open_transaction`, in the running loop."""
        with own.translate_errors():
            connection = await own.open_async(self._handler_conninfo())
        async with connection, connection.transaction():
            await connection.execute(_IDLE)
            yield connection

    def _handler_conninfo(self) -> str:
        return self.conninfo("handler", statement_timeout_s=0, lock_timeout_s=0)

    # Operations, on a connection of the pool or on the caller's

    def run(
        self,
        operation: Operation[T],
        connection: Any = None,
        *,
        atomic: bool = False,
        joins: str | None = None,
        patience: Patience = PATIENT,
    ) -> T:
        """Run an operation.

        Args:
            connection: the caller's; None: a pooled connection.
            atomic: in one transaction, also on an autocommit connection.
            joins: refuse a connection of the caller's on which no transaction is open; this word
                says what else the job would be before the caller's writes are committed.
            patience: how long each answer may take on a pooled connection.
        """
        if connection is not None:
            driver = find_driver(connection)
            _check_joins(driver, joins)
            with Border(is_own=False):
                return drive(driver, operation, self.statements, atomic=atomic)
        with Border(is_own=True), self._pools.connection() as pooled, _Doubt(patience):
            pooled.answer_s = patience.answer_s or ANSWER_S
            return drive(pooled.driver(), operation, self.statements, atomic=atomic)

    async def arun(
        self,
        operation: Operation[T],
        connection: Any = None,
        *,
        atomic: bool = False,
        joins: str | None = None,
        patience: Patience = PATIENT,
    ) -> T:
        """Run an operation from a loop, as `run` does. Rota's own connections limit each answer."""
        if connection is not None:
            theirs = find_async_driver(connection)
            _check_joins(theirs, joins)
            with Border(is_own=False):
                return await adrive(theirs, operation, self.statements, atomic=atomic)
        with Border(is_own=True):
            async with self._pools.aconnection() as pooled:
                ours = pooled.driver()
                limit = Deadline(pooled, patience.answer_s or ANSWER_S)
                with _Doubt(patience):
                    return await adrive(
                        ours, operation, self.statements, atomic=atomic, limit=limit
                    )

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection]:
        """Lend a connection of the sync pool for a block, which is one transaction. An error of a
        statement is a RotaError on one line."""
        with (
            Border(is_own=True),
            own.translate_errors(),
            own.translate_refusals(),
            self._pools.connection() as pooled,
            pooled.transaction(),
        ):
            pooled.answer_s = ANSWER_S
            yield pooled

    def close(self) -> None:
        """Close the sync pool. The next use opens it again."""
        self._pools.close()

    async def aclose(self) -> None:
        """Close the pool of the running loop, and the sync pool."""
        await self._pools.aclose()


_IDLE = f"set local idle_in_transaction_session_timeout = '{HANDLER_IDLE_S}s'".encode()
"""LOCAL: behind a transaction pooler the session belongs to others afterwards."""


def _check_joins(driver: Translator, joins: str | None) -> None:
    if joins is not None and not driver.joins_transaction:
        raise UsageError(
            "the connection is in autocommit, and no transaction is open on it: the job would be "
            f"{joins} before your writes are committed; open one, as in `with "
            "connection.transaction():` (Django: `with transaction.atomic():`)"
        )


class _Doubt:
    """Marks the error of a statement that was sent, and may have been done."""

    def __init__(self, patience: Patience) -> None:
        self._doubt = patience.doubt

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        if isinstance(error, ServerTrouble) and is_away(error):
            error.doubt = self._doubt


class Border:
    """The border where errors leave the store: a StoreError becomes the application's error."""

    def __init__(self, *, is_own: bool) -> None:
        self._is_own = is_own

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        if not isinstance(error, StoreError):
            return
        public = translate_for_app(error, is_own=self._is_own)
        context = public.__context__
        try:
            raise public
        finally:
            public.__context__ = context  # the driver's error is shown as the driver raised it
            del public  # otherwise it keeps the frames of its traceback alive
