"""Statements with the parameters of other clients: how each marks a parameter, and values as text.

Statements are written with `%(name)s` and `%%`. Every parameter is followed by its type, so the
server reads a value that is sent as text, whatever codecs the connection's owner has set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from rota.store.driver import Params

_MARK = re.compile(r"%\((\w+)\)s|%%")

_BY_NAME: dict[str, Callable[[str], str]] = {
    "named": lambda name: f":{name}",
    "pyformat": lambda name: f"%({name})s",
}
_BY_PLACE: dict[str, Callable[[int], str]] = {
    "format": lambda _: "%s",
    "numeric": lambda place: f":{place}",
    "numeric_dollar": lambda place: f"${place}",
    "qmark": lambda _: "?",
}
PARAMSTYLES = (*_BY_NAME, *_BY_PLACE)
"""What the DB-API calls the ways to mark a parameter, and PostgreSQL's own `numeric_dollar`."""


@cache
def number_parameters(text: bytes) -> tuple[str, tuple[str, ...]]:
    """Return a statement with `$1`, `$2` …, each sent as text, and the parameters' names."""
    places: dict[str, int] = {}

    def mark(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        return f"${places.setdefault(found[1], len(places) + 1)}::text"

    return _MARK.sub(mark, text.decode()), tuple(places)


def mark_parameters(
    text: str, params: Params, paramstyle: str
) -> tuple[str, dict[str, Any] | tuple[Any, ...]]:
    """Return a statement and its parameters in another style: a mapping, or a tuple by place."""
    names: list[str] = []

    def mark(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%%" if paramstyle in ("pyformat", "format") else "%"
        if paramstyle in _BY_NAME:
            return _BY_NAME[paramstyle](found[1])
        names.append(found[1])
        return _BY_PLACE[paramstyle](len(names))

    marked = _MARK.sub(mark, text)
    return marked, dict(params) if paramstyle in _BY_NAME else tuple(params[name] for name in names)
