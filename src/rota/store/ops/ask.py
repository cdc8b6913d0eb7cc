"""What people ask of a function of the schema: the caller gets its answer as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rota.errors import UsageError
from rota.store.driver import Operation, Query, Row
from rota.store.errors import INVALID_PARAMETER, RowRefused

Kind = TypeVar("Kind")


def ask(statement: str, /, **params: Any) -> Operation[Any]:
    """Return the value of the only row. Raises UsageError for a parameter that is refused."""
    return (yield from _ask(statement, params))[0][0]


def ask_row(kind: Callable[..., Kind], statement: str, /, **params: Any) -> Operation[Kind]:
    """Return the only row as a `kind`, whose fields are the columns. Raises as `ask`."""
    return (yield from ask_rows(kind, statement, **params))[0]


def ask_rows(kind: Callable[..., Kind], statement: str, /, **params: Any) -> Operation[list[Kind]]:
    """Return each row as a `kind`, whose fields are the columns. Raises as `ask`."""
    return [kind(*row) for row in (yield from _ask(statement, params))]


def _ask(statement: str, params: dict[str, Any]) -> Operation[list[Row]]:
    try:
        return (yield Query(statement, params))
    except RowRefused as error:
        if error.sqlstate != INVALID_PARAMETER:
            raise
        raise UsageError(error.first_line) from error.driver_error
