"""Finds what JSON or PostgreSQL would lose or refuse in a value: NaN, a datetime without a time
zone, raw JSON. Pure."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

# Values of exactly these classes need no check: they are stored as they are, or the encoder refuses
# them.
PLAIN = frozenset({int, str, bool, type(None), bytes, date, time, timedelta, UUID})


def unstorable(value: Any) -> tuple[str, str] | None:
    """Return the path and the reason of the first part that would not come back as it was; None if
    there is none."""
    match value:
        case None | int() | str():
            return None
        case float():
            return None if math.isfinite(value) else ("", f"{value} cannot be stored")
        case Decimal():
            return None if value.is_finite() else ("", f"{value} cannot be stored")
        case datetime():
            return (
                None
                if value.utcoffset() is not None
                else ("", "a datetime without a time zone; add one")
            )
        case msgspec.Raw():
            return "", "raw JSON is not checked; pass the value"
        case _ if hasattr(type(value), "get_secret_value"):
            # pydantic writes a secret like this, unless the model has a serializer of its own.
            lost = value.get_secret_value() in ("*" * 10, b"*" * 10)
            return (
                (
                    "",
                    f"a {type(value).__name__} is stored as asterisks; "
                    "pass a reference to the secret",
                )
                if lost
                else None
            )
        case Mapping():
            return first_unstorable(
                (f".{key}", part) for key, item in value.items() for part in (key, item)
            )
        case list() | tuple() | set() | frozenset():
            return first_unstorable(
                (f"[{i}]", item) for i, item in enumerate(value) if type(item) not in PLAIN
            )
        case _:
            return first_unstorable((f".{name}", part) for name, part in _attributes(value))


def first_unstorable(parts: Iterable[tuple[str, Any]]) -> tuple[str, str] | None:
    for path, part in parts:
        if type(part) not in PLAIN:
            found = unstorable(part)
            if found is not None:
                return path + found[0], found[1]
    return None


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        return ((name, getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return ((part.name, getattr(value, part.name, None)) for part in dataclasses.fields(value))
    if hasattr(value, "__attrs_attrs__"):
        return ((part.name, getattr(value, part.name, None)) for part in value.__attrs_attrs__)
    return vars(value).items() if is_pydantic(type(value)) else ()


def is_pydantic(kind: type) -> bool:
    # Never imported here: if no model was defined, no value is one.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
