"""Writes values as JSON. Finds what JSON or PostgreSQL would lose or refuse, such as NaN or a
datetime without a time zone, and what a worker would read as another value. Pure.

A pydantic model writes and reads itself: only lost fields are found.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from rota.declare.result_of import ResultOf
from rota.declare.secret import Secret, is_sealed

Fault = tuple[str, str]
"""The path of a part of a value, and its fault."""

# Values of exactly these classes need no check: they are stored as they are, or the encoder fails.
PLAIN = frozenset({int, str, bool, type(None), bytes, date, timedelta, UUID})
_MASKED = b'"**********"'
"""What pydantic writes in place of a secret, without a serializer of the model."""


def unstorable(value: Any) -> Fault | None:
    """Return the first part that would not come back as it was; None: there is none."""
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
        case dict() | Mapping() if (twin := _find_twin(value)) is not None:
            return f".{twin}", "another key is the same text, which a key is in JSON"
        case msgspec.Raw():
            return "", "raw JSON is not checked; pass the value"
        case _:
            return find_first(unstorable, _list_parts(value))


def find_first(
    find: Callable[[Any], Fault | None], parts: Iterable[tuple[str, Any]]
) -> Fault | None:
    """Return the first fault in parts, which come after their paths."""
    for path, part in parts:
        found = find(part)
        if found is not None:
            return f"{path}{found[0]}", found[1]
    return None


def _list_parts(value: Any) -> Iterable[tuple[str, Any]]:
    match value:
        case dict() | Mapping():
            if PLAIN.issuperset(map(type, (*value, *value.values()))):
                return ()
            return ((f".{key}", part) for key, item in value.items() for part in (key, item))
        case list() | tuple() | set() | frozenset():
            return ((f"[{i}]", item) for i, item in enumerate(value))
        case _ if is_pydantic(type(value)):
            return ()
        case _:
            kind: Any = type(value)
            names = _list_names(kind) or ()
            return ((f".{name}", getattr(value, name, None)) for name in names)


def _find_twin(value: Mapping[Any, Any]) -> Any:
    """Return the first key that JSON does not tell from a key before it, as 1 from "1"; None: JSON
    tells all keys."""
    if len(set(map(type, value))) < 2:
        return None
    seen: set[bytes] = set()
    for key in value:
        written = encode({key: None})
        if written in seen:
            return key
        seen.add(written)
    return None


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
    """Return the first part of a given value that a worker would read as another value; None: no
    part. A value given in its JSON form, or read as plain JSON, is not compared."""
    given, arrived = pair
    match pair:
        case int(), float():
            return None if given == arrived else ("", "it would arrive as another value")
        case list() | tuple(), list() | tuple():
            items = enumerate(zip(given, arrived, strict=False))
            return find_first(find_change, ((f"[{i}]", item) for i, item in items))
        case dict() | Mapping(), dict() | Mapping():
            if len(given) > len(arrived):
                lost = next((key for key in given if key not in arrived), None)
                return f".{lost}", "it would be lost"
            # Both have the order of the JSON.
            pairs = zip(given, zip(given.values(), arrived.values(), strict=False), strict=False)
            return find_first(find_change, ((f".{key}", item) for key, item in pairs))
        case _, Secret():
            return None if is_sealed(given) else find_change((given, arrived.reveal()))
        case _:
            return _find_changed_field(given, arrived)


def _find_changed_field(given: Any, arrived: Any) -> Fault | None:
    own: Any = type(given)
    kind: Any = type(arrived)
    mine, read = _list_names(own), _list_names(kind)
    if mine is None or read is None:
        return None
    for name in mine:
        if name not in read:
            return f".{name}", f"it would be lost: {kind.__name__} has no such field"
    if is_pydantic(kind):
        return None
    pairs = ((f".{name}", (getattr(given, name, None), getattr(arrived, name))) for name in mine)
    return find_first(find_change, pairs)


@lru_cache(1024)
def _list_names(kind: Any) -> Iterable[str] | None:
    """Return the names of the fields of a class; None: the class has none."""
    if dataclasses.is_dataclass(kind):
        return [part.name for part in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [part.name for part in kind.__attrs_attrs__]
    return kind.model_fields if is_pydantic(kind) else getattr(kind, "__struct_fields__", None)


def is_pydantic(kind: type) -> bool:
    # Not imported here: without pydantic no value is a model.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


# Values as JSON

_ARGUMENTS = {
    Secret: "a Secret is stored only as an argument that is annotated so",
    ResultOf: "the result of another job is an argument of its own, not a part of a value",
}
"""What is wrong with a value that can only be an argument."""


def to_json(value: Any) -> Any:
    """The encoder's hook for what msgspec does not encode."""
    match value:
        case None | bool() | tuple() | frozenset():
            # msgspec encodes values of these types, so this is a key.
            raise TypeError(f"a {type(value).__name__} cannot be a key of a JSON object")
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case datetime():
            return datetime.combine(datetime.date(value), datetime.timetz(value))
        case date():
            return date(value.year, value.month, value.day)
        case Mapping():
            return dict(value)
        case Secret() | ResultOf():
            raise TypeError(_ARGUMENTS[type(value)])
        case _ if is_pydantic(type(value)):
            return _dump(value)
        case _:
            raise TypeError(
                f"a {type(value).__name__} cannot be stored as JSON; "
                "pass its id, or the values that the job needs"
            )


def _dump(model: Any) -> Any:
    dumped = model.model_dump(mode="json", by_alias=True)
    lost = unstorable(dumped)
    if lost is not None:
        raise ValueError(f"{lost[0].removeprefix('.')}: {lost[1]}")
    if _MASKED in msgspec.json.encode(dumped):
        raise ValueError("a SecretStr is stored as asterisks; pass a reference to the secret")
    return dumped


encode = msgspec.json.Encoder(enc_hook=to_json).encode
