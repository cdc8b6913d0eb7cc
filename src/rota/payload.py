"""A handler's arguments as JSON: built from its signature, checked at enqueue, decoded at run."""

from __future__ import annotations

import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, NoReturn

import msgspec

from rota.errors import DeclarationError, PayloadError
from rota.storable import PLAIN, first_unstorable, is_pydantic

Arguments = tuple[dict[str, Any], frozenset[str]]
"""What a payload holds for the handler, and the names of its fields that the handler does not know."""


class Codec:
    """Encodes and decodes the arguments of one job type. What the JSON form of a parameter's type accepts is accepted, at both ends."""

    __slots__ = ("_decode", "_looks_again", "job_type", "names", "positional", "required")

    job_type: str
    names: frozenset[str]
    positional: tuple[str, ...]
    required: frozenset[str]

    def __init__(self, job_type: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> None:
        self.job_type = job_type
        self.names = frozenset(parameter.name for parameter in parameters)
        self.positional = tuple(parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD)
        self.required = frozenset(parameter.name for parameter in parameters if parameter.default is parameter.empty)
        # A TypedDict, because msgspec decodes one straight into the call's keyword arguments, with only those that are there.
        fields = {name: hint if name in self.required else typing.NotRequired[hint] for name, hint in hints.items()}
        make: Any = typing.TypedDict
        self._decode = msgspec.json.Decoder(make("Payload", fields), dec_hook=_from_json).decode
        self._looks_again = any(_may_be_unstorable(hint) for hint in hints.values())

    @classmethod
    def of(cls, func: Callable[..., Any], *, job_type: str, takes_context: bool) -> Codec:
        """Build the codec of a handler. A parameter without an annotation takes any JSON value.

        Raises:
            DeclarationError: a parameter cannot be filled from a stored payload, or its type cannot be read from JSON.
        """
        try:
            parameters = list(inspect.signature(func).parameters.values())
        except (ValueError, TypeError, NameError) as error:
            raise DeclarationError(f"job type {job_type!r}: the handler's signature cannot be read: {error}") from None
        if takes_context:
            if not parameters or parameters[0].kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
                raise DeclarationError(f"job type {job_type!r}: takes_context=True needs a first, positional parameter for the context")
            del parameters[0]
        known = getattr(inspect.unwrap(func), "__globals__", {})
        hints = {parameter.name: _hint(job_type, parameter, known) for parameter in parameters}
        return cls(job_type, parameters, hints)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None) -> str:
        """Return the JSON text of a call's arguments; those that were not given are not stored, so defaults are those of the run.

        Raises:
            PayloadError: they do not fit the signature, or cannot be stored.
        """
        given = self._bound(args, kwargs, index)
        text = self._text(given, index)
        try:
            arguments = self._decode(text)
        except msgspec.ValidationError as error:
            self._refuse_misfit(error, given, index)
        if self._looks_again:
            self._refuse_unstorable(arguments, index)
        return text

    def decode(self, payload: str | bytes) -> Arguments:
        """Return the keyword arguments that a stored payload holds, and the names of its unknown fields, which are ignored.

        Raises:
            PayloadError: it does not fit the signature.
        """
        try:
            arguments: dict[str, Any] = self._decode(payload)
            # Each field brings at least one colon: as many colons as arguments means that there is no other field, without a second look.
            colons = payload.count(":") if isinstance(payload, str) else payload.count(b":")
            unknown = _NONE if colons == len(arguments) else frozenset(_fields(payload)) - self.names
        except msgspec.ValidationError as error:
            self._refuse_misfit(error, {}, None)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PayloadError(self.job_type, None, f"not valid JSON: {error}") from None
        if self._looks_again:
            self._refuse_unstorable(arguments, None)
        return arguments, unknown

    def validate(self, payload: Mapping[str, Any]) -> Arguments:
        """Return what `decode` would for a payload that is not text, such as an upgraded one.

        Raises:
            PayloadError: it does not fit the signature.
        """
        return self.decode(self._text(dict(payload), None))

    def _text(self, given: dict[str, Any], index: int | None) -> str:
        try:
            text = _encoder.encode(given).decode()
            if not PLAIN.issuperset(map(type, given.values())):
                self._refuse_unstorable(given, index)
        except _UNENCODABLE as error:
            self._refuse_unencodable(error, given, index)
        if "\\u0000" in text:
            self._refuse_nul(given, index)
        return text

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None) -> dict[str, Any]:
        # By hand: inspect.Signature.bind takes longer than the encoding and the check together.
        if len(args) > len(self.positional):
            most = f"at most {len(self.positional)} positional arguments, not {len(args)}"
            raise PayloadError(self.job_type, None, f"the handler takes {most}", index)
        given = dict(zip(self.positional, args, strict=False)) if args else {}
        if given and not given.keys().isdisjoint(kwargs):
            twice = next(name for name in given if name in kwargs)
            raise PayloadError(self.job_type, twice, "given twice, by position and by name", index)
        given.update(kwargs)
        if not given.keys() <= self.names:
            unknown = next(name for name in given if name not in self.names)
            raise PayloadError(self.job_type, str(unknown), f"the handler takes no such argument{self._advice(unknown)}", index)
        if not self.required <= given.keys():
            missing = next(name for name in (*self.positional, *sorted(self.required)) if name in self.required and name not in given)
            raise PayloadError(self.job_type, missing, "missing", index)
        return given

    def _advice(self, unknown: object) -> str:
        near = difflib.get_close_matches(str(unknown), self.names, 1)
        if near:
            return f"; did you mean {near[0]!r}?"
        return f"; it takes {', '.join(sorted(self.names))}" if self.names else "; it takes none"

    def _refuse_unstorable(self, values: dict[str, Any], index: int | None) -> None:
        try:
            found = first_unstorable((str(name), value) for name, value in values.items())
        except RecursionError as error:
            raise PayloadError(self.job_type, None, _reason(error), index) from None
        if found is not None:
            raise PayloadError(self.job_type, *found, index)

    def _refuse_nul(self, given: dict[str, Any], index: int | None) -> None:
        for name, value in given.items():
            if _NUL.search(_encoder.encode({name: value})):
                raise PayloadError(self.job_type, str(name), "text with a NUL character cannot be stored", index)

    def _refuse_misfit(self, error: msgspec.ValidationError, given: dict[str, Any], index: int | None) -> NoReturn:
        match = _WHERE.fullmatch(str(error))
        reason, path = (match[1], match[2].removeprefix(".")) if match else (str(error), "")
        missing = _MISSING.fullmatch(reason)
        if missing:
            path, reason = f"{path}.{missing[1]}".removeprefix("."), "missing"
        value = given.get(path)
        if "got `object`" in reason and value is not None and not isinstance(value, Mapping):
            reason = f"{reason}, a {type(value).__name__}; pass its id"
        raise PayloadError(self.job_type, path or None, _lowered(reason), index) from None

    def _refuse_unencodable(self, error: Exception, given: dict[str, Any], index: int | None) -> NoReturn:
        # The encoder does not say where it failed; the argument that fails alone is the one.
        for name, value in given.items():
            try:
                _encoder.encode({name: value})
            except _UNENCODABLE as own:
                raise PayloadError(self.job_type, str(name), _reason(own), index) from None
        raise PayloadError(self.job_type, None, _reason(error), index) from None


_NONE: frozenset[str] = frozenset()
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_WHERE = re.compile(r"(.*) - at (?:`key` in )?`\$(.*)`", re.DOTALL)
_MISSING = re.compile("Object missing required field `(.*)`")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return "nested too deeply, or it contains itself"
        case UnicodeEncodeError():
            return "text with a lone surrogate cannot be stored"
        case _:
            return _lowered(str(error))


def _lowered(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]


# Types: which can be stored, and the few that msgspec does not know


def _hint(job_type: str, parameter: inspect.Parameter, known: dict[str, Any]) -> Any:
    where = f"job type {job_type!r}, parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise DeclarationError(f"{where}: a handler cannot take {stars}{parameter.name}: a payload has named fields; name them")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise DeclarationError(f"{where}: a handler is called with named arguments, so it cannot be positional-only; remove the `/`")
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    try:
        # One at a time, so that the error names it, and the annotations of the context and the result never matter.
        holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
        hint = typing.get_type_hints(holder, globalns=known, include_extras=True)[parameter.name]
    except NameError as error:
        raise DeclarationError(
            f"{where}: its annotation {annotation!r} cannot be resolved: {error}; "
            "import the name where the code runs too, not only under TYPE_CHECKING, and define it at module level, before the handler"
        ) from None
    except (SyntaxError, TypeError, AttributeError) as error:
        raise DeclarationError(f"{where}: its annotation {annotation!r} cannot be resolved: {error}") from None
    try:
        unreadable = next((kind for kind in _custom_types(hint) if not _is_readable(kind)), None)
    except (TypeError, NameError, ValueError) as error:
        raise DeclarationError(f"{where}: its type cannot be read from JSON: {error}") from None
    if unreadable is not None:
        is_context = unreadable.__module__ == "rota.context"
        advice = "declare the job type with takes_context=True" if is_context else "take its id, or the values that the job needs"
        raise DeclarationError(f"{where}: its type {unreadable.__name__} cannot be read from JSON; {advice}")
    return hint


def _custom_types(hint: Any) -> Iterable[type]:
    return (
        getattr(node, "cls", msgspec.Raw) for node in _nodes(hint) if isinstance(node, msgspec.inspect.CustomType | msgspec.inspect.RawType)
    )


def _may_be_unstorable(hint: Any) -> bool:
    """Whether JSON that fits this type may still be a naive datetime or a Decimal NaN; what a pydantic model holds is not known."""
    kinds = msgspec.inspect.DateTimeType | msgspec.inspect.DecimalType | msgspec.inspect.CustomType
    return any(isinstance(node, kinds) for node in _nodes(hint))


def _nodes(hint: Any) -> Iterable[msgspec.inspect.Type]:
    """Every type that this one is made of, each once: types may contain themselves."""
    seen: set[int] = set()
    found: list[msgspec.inspect.Type] = []
    waiting: list[Any] = [msgspec.inspect.type_info(hint)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, msgspec.inspect.Type):
                found.append(node)
            waiting.extend(getattr(node, name) for name in node.__struct_fields__ if name != "default")
    return found


def _is_readable(kind: type) -> bool:
    return kind is object or is_pydantic(kind)


def _to_json(value: Any) -> Any:
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
        case _ if is_pydantic(type(value)):
            return value.model_dump(mode="json", by_alias=True)
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be stored as JSON; pass its id, or the values that the job needs")


def _from_json(kind: type, value: Any) -> Any:
    """The decoder's hook: types that msgspec does not decode by itself."""
    if kind is object:
        return value
    try:
        return kind.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]
    except ValueError as error:
        # pydantic's text has several lines and the input itself, which may be private.
        first = error.errors(include_input=False, include_url=False)[0] if hasattr(error, "errors") else {"loc": (), "msg": str(error)}
        raise ValueError(": ".join([".".join(map(str, first["loc"])) or kind.__name__, str(first["msg"])])) from None


_encoder = msgspec.json.Encoder(enc_hook=_to_json)


def untyped(job_type: str, arguments: dict[str, Any]) -> str:
    """Return the JSON text of arguments for a type that nobody here knows; only what cannot be stored is refused. Raises PayloadError."""
    text = Codec.of(_takes_anything, job_type=job_type, takes_context=False).encode((), {"payload": arguments})
    return text[len('{"payload":') : -1]


def _takes_anything(payload: dict[str, Any]) -> None: ...
