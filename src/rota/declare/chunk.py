"""Job types whose handler takes many jobs in one call: each payload is one item of a list."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import msgspec

from rota.declare.option import duration, whole
from rota.declare.parameter import from_json
from rota.declare.payload import Arguments, Codec
from rota.declare.result_of import ResultOf
from rota.declare.secret import Personal, Secret, is_personal
from rota.declare.storable import is_pydantic
from rota.errors import DeclarationError, PayloadError, UsageError
from rota.model.units import Duration

CHUNK_MAX = 10_000
"""More claimed jobs would lie in one worker's memory while other workers are idle."""
WAIT_S_MAX = 10.0
"""Jobs that wait for others have a lease that is not renewed."""
_JOBS, _WAIT = whole(1, CHUNK_MAX, "jobs"), duration(0.0, WAIT_S_MAX)

_ITEM = "item"
_BEFORE, _AFTER = f'{{"{_ITEM}":', "}"


@dataclass(frozen=True)
class Chunk:
    """One call of the handler takes many jobs. Raises UsageError for a value out of range."""

    jobs_max: int
    """Most jobs of a call, 1 … 10,000."""
    wait: Duration = "0s"
    """How long a job waits for others before the handler is called with fewer, 0 … 10 s. Defaults
    to 0: a call takes what is claimed."""

    def __post_init__(self) -> None:
        _JOBS.check(self.jobs_max, "chunk")
        _WAIT.check(self.wait, "wait")

    @cached_property
    def wait_s(self) -> float:
        """The wait in seconds."""
        return _WAIT.check(self.wait, "wait")  # type: ignore[no-any-return]


def read_chunk(value: Any, *, in_process: bool) -> Chunk | None:
    """Return what `chunk=` says; None: each call takes one job. Raises UsageError."""
    if value is None:
        return None
    if in_process:
        raise UsageError("chunk and process do not go together: a process takes one job a call")
    return value if isinstance(value, Chunk) else Chunk(value)


class ItemCodec(Codec):
    """The codec of a handler that takes a list. A job's arguments are the fields of its item."""

    parameter: str
    """The parameter of the handler that takes the list."""

    def __init__(self, job_type: str, parameter: str, kind: Any) -> None:
        super().__init__(job_type, [], {})
        self.parameter = parameter
        self._kind = kind
        bare = inspect.Parameter(_ITEM, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._items = Codec(job_type, [bare], {_ITEM: kind})
        self._decode_many = msgspec.json.Decoder(list[kind], dec_hook=from_json).decode
        fields = _list_fields(kind) or []
        self._attributes = {field.attribute: field.name for field in fields}
        self.hints = {field.name: field.hint for field in fields}
        self._note_private(self.hints)
        self.names = frozenset(self._attributes.values())
        self.required = frozenset(field.name for field in fields if field.is_required)
        self._has_options = len(self.required) < len(self.names)

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(self._attributes)

    @property
    def secret_parameters(self) -> frozenset[str]:
        """The attributes whose type is Secret."""
        return frozenset(name for name, field in self._attributes.items() if field in self.secret)

    @classmethod
    def of(cls, func: Callable[..., Any], *, job_type: str, takes_context: bool) -> ItemCodec:
        """Return the codec of a handler with one parameter, `list[P]`. Raises DeclarationError for
        another signature, or a P without named fields that JSON can give."""
        # What every handler must keep to.
        plain = Codec.of(func, job_type=job_type, takes_context=takes_context)
        hints = list(plain.hints.items())
        kind = typing.get_args(hints[0][1])[:1] if len(hints) == 1 else ()
        if len(hints) != 1 or typing.get_origin(hints[0][1]) is not list or not kind:
            raise DeclarationError(
                f"job type {job_type!r}: with chunk=… the handler takes one parameter, "
                "list[P], where P is a dataclass, a struct, a model or a TypedDict: the payload "
                "of one job"
            )
        if _list_fields(kind[0]) is None:
            raise DeclarationError(
                f"job type {job_type!r}: a payload has named fields, and {kind[0]!r} has none; "
                "take a list of a dataclass, a struct, a model or a TypedDict"
            )
        [parameter] = plain.parameters
        return cls(job_type, parameter, kind[0])

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None
    ) -> str:
        """Return the JSON text of one item, given as it is or as its fields. Raises
        PayloadError."""
        if (args and kwargs) or len(args) > 1:
            why = f"a job takes one {_name(self._kind)}, or its fields by name"
            raise PayloadError(self.job_type, None, why, index)
        item = args[0] if args else kwargs
        if not args:
            self._refuse_unknown(kwargs, index)
        elif not self._is_item(item):
            why = f"a job takes one {_name(self._kind)}, not {type(item).__name__}"
            raise PayloadError(self.job_type, None, why, index)
        if self.secret:
            item = self._reveal(item)
        try:
            text = self._items.encode((item,), {}, index)
        except PayloadError as error:
            raise self._without_item(error) from None
        text = text[len(_BEFORE) : -len(_AFTER)]
        return self.seal(text, index)

    def set_apart(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None
    ) -> tuple[dict[str, Any], dict[str, ResultOf], Codec]:
        """Raise PayloadError: an item takes no result of another job."""
        raise PayloadError(self.job_type, None, "with chunk=… it takes no result of a job", index)

    def _reveal(self, item: Any) -> dict[str, Any]:
        """Return the fields of an item, with secrets in clear."""
        if not isinstance(item, Mapping):
            fields = ((field, getattr(item, name)) for name, field in self._attributes.items())
            item = {field: value for field, value in fields if value is not msgspec.UNSET}
        return {
            name: value.reveal()
            if isinstance(value, Secret) and self._attributes.get(name, name) in self.secret
            else value
            for name, value in item.items()
        }

    def decode(self, payload: str | bytes) -> Arguments:
        """Return the attributes of a stored item, and its unknown fields. Raises as `read_item`."""
        item, unknown = self.read_item(payload)
        if isinstance(item, Mapping):
            return dict(item), unknown
        return {name: getattr(item, name) for name in self._attributes}, unknown

    def read_item(self, payload: str | bytes) -> tuple[Any, frozenset[str]]:
        """Return the item of a stored payload, and the names of its unknown fields. Raises
        PayloadError."""
        text = payload if isinstance(payload, str) else payload.decode()
        try:
            item = self._items.read(f"{_BEFORE}{text}{_AFTER}")[_ITEM]
        except PayloadError as error:
            raise self._without_item(error) from None
        if not self._has_options and text.count(":") == len(self.names):
            return item, frozenset()
        return item, frozenset(_fields(text)) - self.names

    def read_items(self, payloads: list[str]) -> tuple[list[Any], frozenset[str]] | None:
        """Return the items in payloads and their unknown fields; None: a payload does not fit."""
        text = f"[{','.join(payloads)}]"
        try:
            items = self._decode_many(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if len(items) != len(payloads) or self._items.checks_again or self.hides:
            return None
        if not self._has_options and text.count(":") == len(self.names) * len(items):
            return items, frozenset()
        found = {name for fields in _fields_of_many(text) for name in fields}
        return items, frozenset(found) - self.names

    def read_one(self, name: str, value: Any) -> Any:
        """As `Codec.read_one`, for an attribute of the item."""
        return super().read_one(self._attributes.get(name, name), value)

    def _is_item(self, value: object) -> bool:
        if typing.is_typeddict(self._kind):
            return isinstance(value, Mapping)
        return isinstance(value, typing.get_origin(self._kind) or self._kind)

    def _refuse_unknown(self, given: Mapping[str, Any], index: int | None) -> None:
        known = self.names | self.parameters
        for name in given:
            if name not in known:
                why = f"a {_name(self._kind)} has no such field{self._advice(name)}"
                raise PayloadError(self.job_type, str(name), why, index)

    def _without_item(self, error: PayloadError) -> PayloadError:
        """Return the error of the codec of items as one of this job type."""
        path = (error.argument or "").removeprefix(_ITEM).removeprefix(".")
        return PayloadError(
            self.job_type, path or None, self._word(path, error.reason), error.index
        )


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_fields_of_many = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class _Field(NamedTuple):
    attribute: str
    name: str
    """The name in JSON."""
    is_required: bool
    hint: Any


def _list_fields(kind: Any) -> list[_Field] | None:
    """Return the fields of a class; None: it has no named fields."""
    if is_pydantic(kind):
        mark = cast("Any", Personal)
        return [
            _Field(
                attribute,
                field.alias or attribute,
                field.is_required(),
                mark[field.annotation]
                if is_personal(field.annotation, field.metadata)
                else field.annotation,
            )
            for attribute, field in kind.model_fields.items()
        ]
    info = msgspec.inspect.type_info(kind)
    named = (
        msgspec.inspect.DataclassType | msgspec.inspect.StructType | msgspec.inspect.TypedDictType
    )
    if not isinstance(info, named) or getattr(info, "array_like", False):
        return None
    hints = typing.get_type_hints(typing.get_origin(kind) or kind, include_extras=True)
    return [
        _Field(field.name, field.encode_name, field.required, hints[field.name])
        for field in info.fields
    ]


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
