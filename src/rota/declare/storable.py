"""Finds what JSON or PostgreSQL would lose or refuse in a value, such as NaN or a datetime without
a time zone, and what a worker would read as another value. Pure."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from rota.declare.secret import Secret, is_sealed

Fault = tuple[str, str]
"""The path of a part of a value, and what is wrong with it."""

# Values of exactly these classes need no check: they are stored as they are, or the encoder refuses
# them.
PLAIN = frozenset({int, str, bool, type(None), bytes, date, timedelta, UUID})
_LEAVES = PLAIN | {float, Decimal, datetime, time}
_CHANGED = "it would arrive as another value"


def unstorable(value: Any) -> Fault | None:
    """Return the first part that would not come back as it was; None if there is none."""
    if type(value) in PLAIN:
        return None
    match value:
        case float():
            return None if math.isfinite(value) else ("", f"{value} cannot be stored")
        case Decimal():
            return None if value.is_finite() else ("", f"{value} cannot be stored")
        case datetime() | time():
            lost = _find_lost_offset(value)
            return None if lost is None else ("", lost)
        case msgspec.Raw():
            return "", "raw JSON is not checked; pass the value"
        case dict() | Mapping() if len(value) > len({_find_text(key) for key in value}):
            return "", "two of its keys are the same text in JSON"
        case _ if hasattr(type(value), "get_secret_value"):
            # pydantic writes a secret like this, unless the model has a serializer of its own.
            is_lost = value.get_secret_value() in ("*" * 10, b"*" * 10)
            why = f"a {type(value).__name__} is stored as asterisks; pass a reference to the secret"
            return ("", why) if is_lost else None
        case _:
            return find_first(unstorable, _list_parts(value))


def find_first(
    find: Callable[[Any], Fault | None], parts: Iterable[tuple[str, Any]]
) -> Fault | None:
    """Return the first fault that is found in parts, which come after their paths."""
    for path, part in parts:
        found = find(part)
        if found is not None:
            return f"{path}{found[0]}", found[1]
    return None


def _find_text(key: Any) -> str:
    return str(key.value) if isinstance(key, Enum) else str(key)


def _list_parts(value: Any) -> Iterable[tuple[str, Any]]:
    match value:
        case dict() | Mapping():
            if PLAIN.issuperset(map(type, (*value, *value.values()))):
                return ()
            return ((f".{key}", part) for key, item in value.items() for part in (key, item))
        case list() | tuple() | set() | frozenset():
            return ((f"[{i}]", item) for i, item in enumerate(value))
        case _:
            return ((f".{name}", part) for name, part in (_list_fields(value) or {}).items())


def _find_lost_offset(value: datetime | time) -> str | None:
    """Return what JSON would lose of an instant or of a time of day."""
    offset = value.utcoffset()
    if offset is not None:
        has_seconds = offset.seconds % 60 or offset.microseconds
        return "its offset from UTC has seconds; pass it in UTC" if has_seconds else None
    if isinstance(value, datetime):
        return "a datetime without a time zone; add one"
    return None if value.tzinfo is None else "a time in a zone; pass the zone's name beside it"


def find_change(pair: tuple[Any, Any]) -> Fault | None:
    """Return the first part of a given value that a worker would read as another one; None if there
    is none. What is given in its JSON form, or read as plain JSON, is not compared."""
    given, arrived = pair
    match pair:
        case datetime(), datetime():
            # Where clocks are set back, the same instants in two zones are not equal.
            is_same = not given - arrived
        case int(), float():
            is_same = given == arrived
        case _ if type(arrived) in _LEAVES:
            is_same = not isinstance(given, type(arrived)) or given == arrived
        case set() | frozenset(), set() | frozenset():
            is_rounded = float in map(type, arrived) and not given <= arrived
            is_same = len(given) == len(arrived) and not is_rounded
        case list() | tuple(), list() | tuple():
            if len(given) <= len(arrived):
                items = enumerate(zip(given, arrived, strict=False))
                return find_first(find_change, ((f"[{i}]", item) for i, item in items))
            is_same = False
        case dict() | Mapping(), dict() | Mapping():
            names = [name for name in given if name in arrived]
            pairs = ((f".{name}", (given[name], arrived[name])) for name in names)
            return find_first(find_change, pairs)
        case _, Secret():
            return None if is_sealed(given) else find_change((given, arrived.reveal()))
        case _:
            return _find_changed_field(given, arrived)
    return None if is_same else ("", _CHANGED)


def _find_changed_field(given: Any, arrived: Any) -> Fault | None:
    mine, read = _list_fields(given), _list_fields(arrived)
    if mine is None or read is None:
        return None
    kind, own = type(arrived), type(given)
    # A generic model may arrive as one of a subclass, and a notebook's cell makes a class anew.
    if not (isinstance(given, kind) or isinstance(arrived, own) or kind.__name__ == own.__name__):
        return "", f"it would arrive as {kind.__name__}"
    for name, part in mine.items():
        if name not in read:
            return f".{name}", f"it would be lost: {kind.__name__} has no such field"
        found = find_change((part, read[name]))
        if found is not None and not (found[1] == _CHANGED and _is_meant(given, arrived, name)):
            return f".{name}{found[0]}", found[1]
    return None


def _is_meant(given: Any, arrived: Any, name: str) -> bool:
    """Whether a pydantic model itself stores this field as the same, or not at all."""
    if not is_pydantic(type(given)):
        return False
    mine, read = (one.model_dump(mode="json", include={name}) for one in (given, arrived))
    return bool(mine == read)


def _list_fields(value: Any) -> dict[str, Any] | None:
    """Return the values of an object's fields by their names; None: it has none."""
    kind: Any = type(value)
    names = _list_names(kind)
    if names is None:
        return None
    extra = getattr(value, "__pydantic_extra__", None) or {}
    return {name: getattr(value, name, None) for name in names} | extra


@lru_cache(1024)
def _list_names(kind: Any) -> Iterable[str] | None:
    if dataclasses.is_dataclass(kind):
        return [part.name for part in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [part.name for part in kind.__attrs_attrs__]
    return kind.model_fields if is_pydantic(kind) else getattr(kind, "__struct_fields__", None)


def is_pydantic(kind: type) -> bool:
    # Never imported here: if no model was defined, no value is one.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
