"""A connection of a worker's own, which never waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from rota.errors import ConfigurationError, DatabaseUnavailable, PayloadError, SchemaError
from rota.store.db import ANSWER_S, LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S, Database
from rota.store.driver import Operation, adrive
from rota.store.drivers.own import Deadline, OwnConnection
from rota.store.drivers.psycopg3 import ERRORS, translate
from rota.store.errors import StoreError, translate_for_worker
from rota.store.statements import Statements

T = TypeVar("T")


class StoreLink:
    """A worker's own connection, opened again after it broke. It runs one operation at a time."""

    def __init__(
        self,
        database: Database,
        role: str,
        *,
        answer_s: float | None = None,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        is_kept: bool = True,
    ) -> None:
        """A connection that is not kept is closed after each operation: it is needed rarely."""
        self._database = database
        self._role = role
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._statement_timeout_s = statement_timeout_s
        self._lock_timeout_s = lock_timeout_s
        self._is_kept = is_kept
        self._connection: OwnConnection | None = None
        # While one operation waits for its answer, the time limit of the next does not run.
        self._turn = asyncio.Lock()

    @property
    def statements(self) -> Statements:
        return self._database.statements

    async def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        """Run an operation; with `atomic` in one transaction. Raises DatabaseUnavailable even for a
        refusal: people see and fix the reason, and the worker tries again."""
        async with self.borrow() as connection:
            limit = Deadline(connection, self._answer_s)
            driver = connection.driver()
            try:
                return await adrive(driver, operation, self.statements, atomic=atomic, limit=limit)
            finally:
                if not self._is_kept:
                    self._connection = None

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[OwnConnection]:
        """Lend the connection for a block. An error that leaves it in doubt replaces it."""
        async with self._turn:
            with _translate_for_worker():
                connection = await self._open()
            try:
                with _translate_for_worker():
                    yield connection
            except BaseException as error:
                # Whatever interrupted it: a connection that is not idle must not be used again. Nor
                # may a connection to a server that answers and has become read-only after a
                # failover.
                if isinstance(error, DatabaseUnavailable) or not connection.is_idle:
                    self._connection = None
                raise
            finally:
                if self._connection is not connection:
                    await connection.close()

    async def close(self) -> None:
        """Close it; the next `run` opens another. An operation that waits for its answer fails."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._turn.locked():
            # The borrower closes it: to close a file that uvloop watches would abort the process.
            connection.cut()
        else:
            await connection.close()

    async def _open(self) -> OwnConnection:
        if self._connection is None or self._connection.closed:
            try:
                async with asyncio.timeout(self._answer_s):
                    self._connection = await self._database.connect(
                        self._role,
                        statement_timeout_s=self._statement_timeout_s,
                        lock_timeout_s=self._lock_timeout_s,
                    )
            except TimeoutError:
                why = f"the database does not answer: no connection within {self._answer_s:g} s"
                raise DatabaseUnavailable(why) from None
        return self._connection


@contextmanager
def _translate_for_worker() -> Iterator[None]:
    """Turn whatever the database or the operating system says into DatabaseUnavailable."""
    try:
        yield
    except StoreError as error:
        raise translate_for_worker(error) from error.driver_error
    except ERRORS as error:
        raise translate_for_worker(translate(error)) from error
    except (SchemaError, PayloadError) as error:
        raise DatabaseUnavailable(f"the database refuses: {error}", refused=True) from error
    except ConfigurationError as error:
        raise DatabaseUnavailable(str(error)) from error
    except OSError as error:
        raise DatabaseUnavailable(f"no connection to the database: {error}") from error
