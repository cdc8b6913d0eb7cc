"""The interface of drivers, and how a driver runs an operation.

An operation is a generator: it yields a `Query` and is sent the rows, or thrown a `StoreError`. So
each operation is written once, for plain code, event loops and every driver. A driver is one
connection as one operation sees it. `tests/store/conformance/` says what every driver must do.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from rota.store.errors import StoreError
from rota.store.statements import Statements

T = TypeVar("T")
Row = tuple[Any, ...]
Params = dict[str, Any]


class Query(msgspec.Struct, frozen=True):
    """One statement of an operation: the name of its SQL file and its parameters."""

    name: str
    params: Params = {}
    command: str | None = None
    """A command that the database has built, to run instead of the file. It returns no rows."""
    text: str | None = None
    """The text of the statement, if it is no file of Rota's."""
    each: Iterable[Params] | None = None
    """Parameters to run the file with, time after time, instead of `params`."""


Operation = Generator[Query, list[Row], T]


def format_numbers(values: Sequence[int | None]) -> str:
    """Format whole numbers as an SQL array: the server reads that ten times faster than binary."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def format_texts(values: Sequence[str | None]) -> str:
    """Format texts as an SQL array: psycopg looks at each text two more times."""
    everything = "".join([value for value in values if value is not None])
    if "\\" in everything or '"' in everything:
        values = [None if value is None else _escape(value) for value in values]
    return "{" + ",".join(["NULL" if value is None else f'"{value}"' for value in values]) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def format_params(params: Params) -> dict[str, str | None]:
    """Return each value as the text that PostgreSQL reads."""
    return {name: _format(value) for name, value in params.items()}


def _format(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return format_texts([_format(item) for item in value])
        case datetime():
            return value.isoformat()
        case timedelta():
            # Every field has its own sign, whatever the connection's IntervalStyle.
            return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"
        case _:
            return str(value)


class Translator(Protocol):
    errors: ClassVar[tuple[type[Exception], ...]]
    """Every error that the driver raises for the server or the network."""

    @property
    def joins_transaction(self) -> bool:
        """Whether the current statement is in a transaction that the connection's owner ends."""

    @property
    def psycopg_connection(self) -> Any:
        """The connection of psycopg that statements use; None: they use none."""

    def translate(self, error: Exception) -> StoreError:
        """Return the StoreError for one of `errors`. It sends nothing."""


class Driver(Translator, Protocol):
    """A connection in plain code."""

    def run(self, text: bytes, params: Params | None) -> list[Row]:
        """Run a statement and return its rows as tuples; no rows if it returns none.

        Parameters stand as `%(name)s` and a percent sign as `%%`; with `params` None the text is
        sent as it is. Every type of a column and parameter is PostgreSQL's: lists are arrays,
        instants are aware datetimes, intervals are timedeltas.
        """

    def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        """Run a statement with each of these parameters, and return all rows in this order. After
        an error the server runs no further statement. A pipeline makes parameters while the server
        works."""

    def transaction(self) -> AbstractContextManager[object]:
        """Begin, and commit after the block; in an open transaction a savepoint and its release. An
        error in the block rolls back to the beginning of the block and propagates."""


class AsyncDriver(Translator, Protocol):
    """A connection in an event loop. Its methods do what the methods of `Driver` do."""

    async def run(self, text: bytes, params: Params | None) -> list[Row]: ...

    async def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]: ...

    def transaction(self) -> AbstractAsyncContextManager[object]: ...


def drive(
    driver: Driver,
    operation: Operation[T],
    statements: Statements,
    *,
    atomic: bool = False,
) -> T:
    """Run an operation; `atomic`: in one transaction, even in autocommit. Raises StoreError."""
    if atomic and not driver.joins_transaction:
        try:
            with driver.transaction():
                return drive(driver, operation, statements)
        except driver.errors as error:  # of the commit
            raise driver.translate(error) from error
    try:
        query = next(operation)
        while True:
            try:
                rows = _run(driver, query, statements)
            except driver.errors as error:
                query = operation.throw(driver.translate(error))
            else:
                query = operation.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def adrive(
    driver: AsyncDriver,
    operation: Operation[T],
    statements: Statements,
    *,
    atomic: bool = False,
    limit: AbstractContextManager[object] | None = None,
) -> T:
    """Run an operation as `drive` does. `limit` is entered for each statement, and may end it."""
    if atomic and not driver.joins_transaction:
        try:
            async with driver.transaction():
                return await adrive(driver, operation, statements, limit=limit)
        except driver.errors as error:  # of the commit
            raise driver.translate(error) from error
    each = nullcontext() if limit is None else limit
    try:
        query = next(operation)
        while True:
            try:
                with each:
                    rows = await _run(driver, query, statements)
            except driver.errors as error:
                query = operation.throw(driver.translate(error))
            else:
                query = operation.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _run(driver: Any, query: Query, statements: Statements) -> Any:
    """Let a driver run a query. Return its rows, or the coroutine of an async driver."""
    if query.command is not None:
        return driver.run(query.command.encode(), None)
    if query.text is not None:
        return driver.run(statements.translate(query.text), query.params)
    if query.each is not None:
        return driver.run_each(statements[query.name], query.each)
    return driver.run(statements[query.name], query.params)
