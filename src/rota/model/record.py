"""Values that travel: what a read returns, in the form of `--json`, for views and other programs.
The names of that form are here: the command line, `to_dict` and the schema share them."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, ClassVar

import msgspec

ReadJson = Callable[[str], Any]
"""What stands for a column of JSON: its value, or its text as it is."""

JSON = "_json"
"""A field `payload_json` has the text of a column of JSON. It travels as `payload`, a value."""


class Record(msgspec.Struct, frozen=True):
    """What the database returned."""

    __json_names__: ClassVar[dict[str, str | None]] = {}
    """Other names in JSON, by field; None: it does not travel."""

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values, as `--json` prints it: instants in ISO 8601 and UTC, durations
        in seconds. `json.dumps` takes it, and so do Flask's and Django's answers."""
        converted: dict[str, Any] = msgspec.to_builtins(
            self.facts(msgspec.json.decode), str_keys=True
        )
        return converted

    def facts(self, read_json: ReadJson) -> dict[str, Any]:
        """Return its values by names in JSON, JSON columns last. Called by the command line."""
        facts: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        for field, name in self._names():
            value = getattr(self, field)
            if not _is_json(field, name):
                facts[name] = convert(value, read_json)
            else:
                columns[name] = None if value is None else read_json(value)
        return facts | columns

    @classmethod
    def _names(cls) -> list[tuple[str, str]]:
        fields = [(field, cls.__json_names__.get(field, field)) for field in cls.__struct_fields__]
        return [(field, name.removesuffix(JSON)) for field, name in fields if name is not None]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the names and values of `to_dict`: so `dict(job)` is it too, which a view of
        FastAPI without a return annotation asks for."""
        return iter(self.to_dict().items())

    # For pydantic, which is not imported: a schema is a dict.

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "is-instance",
            "cls": cls,
            "serialization": {
                "type": "function-plain",
                "function": cls.to_dict,
                "when_used": "json",
            },
        }

    @property
    def __pydantic_serializer__(self) -> Any:
        """Where no annotation names the record, as in `dict[str, Any]`, pydantic asks for this."""
        if "pydantic_core" not in sys.modules:
            raise AttributeError("pydantic is not imported")
        return _make_serializer(type(self))

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return cls.json_schema()

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of `to_dict`."""
        hints = typing.get_type_hints(cls)
        properties = {
            name: {} if _is_json(field, name) else describe(hints[field])
            for field, name in cls._names()
        }
        return {
            "title": cls.__name__,
            "type": "object",
            "properties": properties,
            "required": list(properties),
        }


@cache
def _make_serializer(kind: type[Record]) -> Any:
    return sys.modules["pydantic_core"].SchemaSerializer(
        kind.__get_pydantic_core_schema__(kind, None)
    )


def _is_json(field: str, name: str) -> bool:
    return field == name + JSON


def convert(value: Any, read_json: ReadJson) -> Any:
    """Return a value in what JSON has: instants in UTC, durations in seconds."""
    match value:
        case datetime():
            return value.astimezone(UTC)
        case timedelta():
            return value.total_seconds()
        case Record():
            return value.facts(read_json)
        case msgspec.Struct():
            return convert(msgspec.structs.asdict(value), read_json)
        case dict():
            return {name: convert(item, read_json) for name, item in value.items()}
        case list() | tuple():
            return [convert(item, read_json) for item in value]
        case _:
            return value


def describe(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type that a field of a record has."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [describe(argument) for argument in arguments]}
    if origin is list:
        return {"type": "array", "items": describe(arguments[0])}
    if isinstance(hint, type) and origin is None:
        if issubclass(hint, Record):
            return hint.json_schema()
        if issubclass(hint, Enum):
            return {"type": "string", "enum": [member.value for member in hint]}
        if issubclass(hint, timedelta):
            return {"type": "number"}
        if issubclass(hint, datetime):
            return {"type": "string", "format": "date-time"}
    return msgspec.json.schema(hint)
