"""Calls of functions that a package has in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from rota.errors import UsageError
from rota.store.driver import Operation, Query
from rota.store.errors import RowRefused
from rota.store.statements import Function, read_function

_OF_A_VALUE = ("22", "23")
"""Invalid data, and constraints."""


def call_function(text: str, arguments: Mapping[str, Any]) -> Operation[list[dict[str, Any]]]:
    """Call the function that this file makes. Parameters that are not given are NULL. Raises
    UsageError for an unknown argument, or a value that it refuses."""
    function = _read(text)
    params = _fill(function, arguments)
    try:
        rows = yield Query(function.name, params, text=function.call)
    except RowRefused as error:
        if not (error.sqlstate or "").startswith(_OF_A_VALUE):
            raise
        raise UsageError(error.first_line) from error
    columns = function.columns or (function.name,)
    return [dict(zip(columns, row, strict=True)) for row in rows]


@cache
def _read(text: str) -> Function:
    if "function" not in text:
        raise UsageError(f"this file makes no function to call: {text.strip()[:100]}")
    return read_function(text)


def _fill(function: Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {name.removeprefix("p_"): kind for name, kind in function.arguments}
    if unknown := sorted(arguments.keys() - kinds.keys()):
        raise UsageError(
            f"{function.name} has no argument {unknown[0]!r}; it has {', '.join(kinds)}"
        )
    given = {name: arguments.get(name) for name in kinds}
    if wrong := [name for name, value in given.items() if isinstance(value, str) and "\0" in value]:
        raise UsageError(f"{function.name}: {wrong[0]} has a NUL, which PostgreSQL does not store")
    return {
        name: msgspec.json.encode(value).decode()
        if kinds[name] == "jsonb" and value is not None
        else value
        for name, value in given.items()
    }
