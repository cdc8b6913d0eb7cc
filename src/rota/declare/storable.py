"""Writes values as JSON. Finds what JSON or PostgreSQL would lose or refuse in a value, such as NaN
or a datetime without a time zone, and what a worker would read as another value. Pure."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Set, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
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
        case dict() | Mapping() if _has_twins(value):
            return "", "two of its keys are the same text in JSON"
        case _ if hasattr(type(value), "get_secret_value"):
            # pydantic writes a secret like this, unless the model has a serializer of its own.
            is_lost = value.get_secret_value() in ("*" * 10, b"*" * 10)
            why = f"a {type(value).__name__} is stored as asterisks; pass a reference to the secret"
            return ("", why) if is_lost else None
        case _:
            return find_first(unstorable, list_parts(value))


def find_first(
    find: Callable[[Any], Fault | None], parts: Iterable[tuple[str, Any]]
) -> Fault | None:
    """Return the first fault that is found in parts, which come after their paths."""
    for path, part in parts:
        found = find(part)
        if found is not None:
            return f"{path}{found[0]}", found[1]
    return None


def _has_twins(value: Mapping[Any, Any]) -> bool:
    """Whether two keys are the same text in JSON. Of one plain class no two are."""
    kinds = set(map(type, value))
    is_safe = len(kinds) < 2 and kinds <= PLAIN
    return not is_safe and len(value) > len(set(map(_encode_key, value)))


def _encode_key(key: Any) -> str | bytes:
    try:
        return encode({key: None})
    except (TypeError, ValueError):  # pydantic has a text for it
        return str(key)


def list_parts(value: Any) -> Iterable[tuple[str, Any]]:
    match value:
        case dict() | Mapping():
            if PLAIN.issuperset(map(type, (*value, *value.values()))):
                return ()
            return ((f".{key}", part) for key, item in value.items() for part in (key, item))
        case list() | tuple() | Set() | deque() | UserList() | ValuesView():
            return ((f"[{i}]", item) for i, item in enumerate(value))
        case _:
            kind: Any = type(value)
            own, fields = _list_own(kind), (_list_fields(value) or {}).items()
            return ((f".{name}", part) for name, part in fields if name not in own)


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
            return _find_changed_item(given, arrived)
        case _, Secret():
            return None if is_sealed(given) else find_change((given, arrived.reveal()))
        case _:
            return _find_changed_field(given, arrived)
    return None if is_same else ("", _CHANGED)


def _find_changed_item(given: Mapping[Any, Any], arrived: Mapping[Any, Any]) -> Fault | None:
    if len(given) > len(arrived):
        lost = next((key for key in given if key not in arrived), None)
        return f".{lost}", "it would be lost"
    # Both have the order of the JSON.
    for (key, part), (read, value) in zip(given.items(), arrived.items(), strict=False):
        found = (key != read and find_change((key, read))) or find_change((part, value))
        if found:
            return f".{key}{found[0]}", found[1]
    return None


def _find_changed_field(given: Any, arrived: Any) -> Fault | None:
    mine, read = _list_fields(given), _list_fields(arrived)
    if mine is None or read is None:
        return None
    kind: Any = type(arrived)
    own: Any = type(given)
    # A generic model may arrive as one of a subclass, and a notebook's cell makes a class anew.
    if not (isinstance(given, kind) or isinstance(arrived, own) or kind.__name__ == own.__name__):
        return "", f"it would arrive as {kind.__name__}"
    own_fields = _list_own(own)
    for name, part in mine.items():
        if name not in read:
            return f".{name}", f"it would be lost: {kind.__name__} has no such field"
        found = unstorable(read[name]) if name in own_fields else find_change((part, read[name]))
        if found is not None:
            return f".{name}{found[0]}", found[1]
    return None


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


@lru_cache(1024)
def _list_own(kind: Any) -> Collection[str]:
    """Return the fields that a pydantic model stores in a way of its own, or not at all."""
    if not is_pydantic(kind) or kind.model_rebuild(raise_errors=False) is False:
        return frozenset()
    schema = kind.__pydantic_core_schema__
    named = {one["ref"]: one for one in schema.get("definitions", ())}
    inner: Any = {**schema, "definitions": ()}
    is_all = _is_own(inner, named, set())
    while inner is not None and inner["type"] != "model-fields":
        inner = named.get(inner.get("schema_ref"), inner.get("schema"))
    fields = inner["fields"] if inner else {}
    return {name for name in kind.model_fields if is_all or _is_own(fields.get(name), named, set())}


def _is_own(part: Any, named: Mapping[str, Any], seen: set[int]) -> bool:
    """Whether a part of a core schema of pydantic's is left out, or written by other code than
    pydantic's, here or anywhere below. The fields of a model are asked of that model alone."""
    if id(part) in seen:
        return False
    seen.add(id(part))
    match part:
        case {"serialization_exclude": True} | {"serialization_exclude_if": _}:
            return True
        case {"serialization": {"type": str(how), **rest}} if how != "any" and not (
            getattr(rest.get("function"), "__module__", None) or ""
        ).startswith("pydantic."):
            return True
        case dict() if part.get("type") != "model-fields":
            below = (*part.values(), named.get(str(part.get("schema_ref"))))
            return any(_is_own(one, named, seen) for one in below)
        case list() | tuple():
            return any(_is_own(one, named, seen) for one in part)
        case _:
            return False


# Values as JSON


def to_json(value: Any) -> Any:
    """The encoder's hook: what msgspec does not encode by itself."""
    match value:
        case msgspec.UnsetType():
            raise TypeError("UNSET cannot be stored")
        case None | bool() | tuple() | frozenset():
            # As values msgspec encodes these itself.
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
        case _:
            return _dump(value)


def _dump(value: Any) -> Any:
    if isinstance(value, Secret):
        raise TypeError("a Secret is stored only as an argument that is annotated so")
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(
        f"a {type(value).__name__} cannot be stored as JSON; "
        "pass its id, or the values that the job needs"
    )


encode = msgspec.json.Encoder(enc_hook=to_json).encode
