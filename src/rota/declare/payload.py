"""A handler's arguments as JSON: built from its signature, checked at enqueue, decoded at run."""

from __future__ import annotations

import copy
import difflib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

import msgspec

from rota.declare.parameter import (
    field_of,
    from_json,
    list_private,
    may_be_unstorable,
    may_change,
    type_of,
)
from rota.declare.result_of import ResultOf
from rota.declare.secret import Secret, is_sealed
from rota.declare.storable import PLAIN, Fault, encode, find_change, find_first, to_json, unstorable
from rota.errors import DeclarationError, PayloadError
from rota.model.scrub import MASK, Hidden
from rota.model.units import plural

Arguments = tuple[dict[str, Any], frozenset[str]]
"""Keyword arguments from a payload, and the names of its fields that the handler does not take."""


class Codec:
    """The arguments of one job type as JSON. Encode and decode accept the JSON form of a type."""

    job_type: str
    context: str | None = None
    """The handler's parameter for the context, which is no field; None: it takes none."""
    names: frozenset[str]
    """The payload's fields: `from`, if the parameter is `from_`. So are all names here."""
    positional: tuple[str, ...]
    required: frozenset[str]
    checks_again: bool
    """Whether JSON that fits the types may still be impossible to store."""
    hints: Mapping[str, Any]
    """The types of the arguments, by field."""
    defaults: Mapping[str, Any]
    """The handler's defaults, by field."""
    secret: frozenset[str]
    """The fields that are stored sealed."""
    personal: frozenset[str]
    """The fields that are masked where they are shown."""
    hides: bool
    """Whether a field is secret or personal."""

    def __init__(
        self, job_type: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]
    ) -> None:
        self.job_type = job_type
        fields = {parameter.name: field_of(parameter.name) for parameter in parameters}
        self.names = frozenset(fields.values())
        self.positional = tuple(
            fields[parameter.name]
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        )
        self.required = frozenset(
            fields[parameter.name]
            for parameter in parameters
            if parameter.default is parameter.empty
        )
        # Only the names that differ, which nearly no handler has.
        self._fields = {name: field for name, field in fields.items() if field != name}
        self._parameters = {field: name for name, field in self._fields.items()}
        self.defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if fields[parameter.name] not in self.required
        }
        self.hints = {fields[name]: hint for name, hint in hints.items()}
        self._decode = self._make_decoder()
        self.checks_again = any(may_be_unstorable(hint) for hint in hints.values())
        self._compared = {name for name, hint in self.hints.items() if may_change(hint)}
        self._note_private(self.hints)

    def _make_decoder(self) -> Callable[[str | bytes], dict[str, Any]]:
        # msgspec decodes a TypedDict straight into keyword arguments, without missing fields.
        types = {
            name: hint if name in self.required else typing.NotRequired[hint]
            for name, hint in self.hints.items()
        }
        make: Any = typing.TypedDict
        decoder = msgspec.json.Decoder(make("Payload", types), dec_hook=from_json)
        return decoder.decode

    def _note_private(self, hints: Mapping[str, Any]) -> None:
        self.secret, self.personal = list_private(hints)
        self.hides = bool(self.secret or self.personal)

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the handler's parameters: `from_`, if the payload's field is `from`."""
        return self.name_parameters(self.names)

    def name_parameters(self, fields: Iterable[str]) -> frozenset[str]:
        """Return the names of the handler's parameters that these fields fill."""
        return frozenset(self._parameters.get(field, field) for field in fields)

    @property
    def plain(self) -> frozenset[str]:
        """The fields that the handler gets as stored: texts, integers, any JSON value."""
        hints = self.hints.items()
        return self.parameters & {name for name, hint in hints if hint in (str, int, Any)}

    @property
    def secret_parameters(self) -> frozenset[str]:
        """The parameters that are a Secret."""
        return self.name_parameters(self.secret)

    @classmethod
    def of(cls, func: Callable[..., Any], *, job_type: str, takes_context: bool) -> Codec:
        """Return the codec of a handler; without an annotation a parameter takes any JSON value.
        Raises DeclarationError as `type_of`."""
        try:
            parameters = list(inspect.signature(func).parameters.values())
        except (ValueError, TypeError, NameError) as error:
            raise DeclarationError(
                f"job type {job_type!r}: the handler's signature cannot be read: {error}"
            ) from None
        context = None
        if takes_context:
            if not parameters or parameters[0].kind not in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            ):
                raise DeclarationError(
                    f"job type {job_type!r}: takes_context=True needs a first, positional "
                    "parameter for the context"
                )
            context = parameters.pop(0).name
            if any(parameter.name == "ctx" for parameter in parameters):
                raise DeclarationError(
                    f"job type {job_type!r}: takes_context=True gives the context to the first "
                    f"parameter, which is {context} and not ctx"
                )
        elif (
            parameters
            and parameters[0].name == "ctx"
            and parameters[0].annotation is inspect.Parameter.empty
        ):
            raise DeclarationError(
                f"job type {job_type!r}: ctx counts as an argument of the job: declare it with "
                "takes_context=True, or annotate the parameter if the payload has it"
            )
        known = getattr(inspect.unwrap(func), "__globals__", {})
        hints = {
            parameter.name: type_of(parameter, known, job_type=job_type) for parameter in parameters
        }
        kind = SealingCodec if any(list_private(hints)) else cls
        codec = kind(job_type, parameters, hints)
        codec.context = context
        return codec

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None
    ) -> str:
        """Return the JSON text of a call's arguments. Omitted arguments are not stored: the handler
        has their defaults. Raises PayloadError."""
        given = self._bind(args, kwargs, index) if args or self._fields else kwargs
        if not self.names.issuperset(given):
            self._check_names(given, index)
        text = self.write(given, index)
        try:
            arguments = self._decode(text)
        except msgspec.ValidationError as error:
            self._check_names(given, index)  # what is missing comes before what is wrong
            self._refuse_mismatch(error, given, index)
        if self.checks_again:
            self._refuse(unstorable, arguments.items(), index)
        if self._compared:
            names = [name for name in given if name in self._compared]
            parts = [(name, (given[name], arguments[name])) for name in names]
            self._refuse(find_change, parts, index)
        return text

    def set_apart(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None
    ) -> tuple[dict[str, Any], dict[str, ResultOf], Codec]:
        """Return the arguments of a call that are known, the results that it takes of other jobs,
        both by field, and the codec of the known arguments. Raises PayloadError."""
        given = self._bind(args, kwargs, index)
        self._check_names(given, index)
        takes = {name: value for name, value in given.items() if isinstance(value, ResultOf)}
        for name in self.secret & takes.keys():
            why = "it is a Secret, and the result of another job is stored in clear"
            raise PayloadError(self.job_type, name, why, index)
        rest = copy.copy(self)
        rest.required = self.required - takes.keys()
        rest._decode = rest._make_decoder()
        return {name: given[name] for name in given if name not in takes}, takes, rest

    def seal(self, text: str, index: int | None = None) -> str:
        """Return the JSON text of a payload with each secret field sealed. Raises PayloadError for
        a mask instead of a value, and ConfigurationError without a key."""
        if not self.secret and MASK not in text:
            return text
        payload: dict[str, Any] = msgspec.json.decode(text)
        refuse_mask(self.job_type, self.secret | self.personal, payload, index)
        for name in self.secret & payload.keys():
            value = payload[name]
            if value is not None and not is_sealed(value):
                payload[name] = Secret(value).seal()
        return msgspec.json.encode(payload).decode() if self.secret else text

    def hide(self, *payloads: Mapping[str, Any]) -> Hidden:
        """Hide the secret and personal values of a payload, as stored and as upgraded, their
        defaults, and all that is sealed. Raises SecretKeyMissing for a seal whose key this process
        lacks."""
        defaults = {field_of(name): default for name, default in self.defaults.items()}
        given = [{**defaults, **payload} for payload in payloads]
        secret = [payload.get(name) for payload in given for name in self.secret]
        clear = [value for value in secret if not is_sealed(value)]
        opened = [Secret.open(sealed).reveal() for sealed in _list_sealed(list(payloads))]
        personal = [payload.get(name) for payload in given for name in self.personal]
        return Hidden(_list_texts([*clear, *opened]), _list_texts(personal))

    def decode(self, payload: str | bytes) -> Arguments:
        """Return the keyword arguments of a stored payload, and its unknown fields, which are
        ignored. Raises PayloadError."""
        arguments = self.read(payload)
        # A field has at least one colon. As many colons as arguments prove that there is no other
        # field, without a second parse.
        colons = payload.count(":") if isinstance(payload, str) else payload.count(b":")
        unknown = _NONE if colons == len(arguments) else self._find_unknown(payload)
        if self._parameters:
            arguments = {self._parameters.get(name, name): arguments[name] for name in arguments}
        return arguments, unknown

    def decode_many(self, payloads: list[str]) -> list[dict[str, Any]] | None:
        """Return the keyword arguments of stored payloads. None: decode each payload alone."""
        if self.checks_again or self._parameters or self.hides:
            return None
        decode = self._decode
        try:
            found: list[dict[str, Any]] = [decode(payload) for payload in payloads]
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        # As in `decode`. A colon may also be part of a text: then the fields are looked at.
        for payload, arguments in zip(payloads, found, strict=True):
            if payload.count(":") != len(arguments) and self._find_unknown(payload):
                return None
        return found

    def _find_unknown(self, payload: str | bytes) -> frozenset[str]:
        return frozenset(_fields(payload)) - self.names

    def read(self, payload: str | bytes) -> dict[str, Any]:
        """Return the handler's arguments in a stored payload, by field. Raises as `decode`."""
        try:
            arguments: dict[str, Any] = self._decode(payload)
        except msgspec.ValidationError as error:
            self._refuse_mismatch(error, {}, None, payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PayloadError(self.job_type, None, f"not valid JSON: {error}") from None
        if self.checks_again:
            self._refuse(unstorable, arguments.items(), None)
        return arguments

    def read_one(self, name: str, value: Any) -> Any:
        """Return one argument as the handler would get it; a value without a JSON form as it is.
        Raises PayloadError."""
        try:
            text = encode(value)
        except _UNENCODABLE:
            return value
        hint = self.hints[self._fields.get(name, name)]
        try:
            return msgspec.json.decode(text, type=hint, dec_hook=from_json)
        except msgspec.ValidationError as error:
            raise PayloadError(self.job_type, name, self._word(name, str(error))) from None

    def _check_names(self, given: dict[str, Any], index: int | None) -> None:
        for name in given:
            if name not in self.names:
                why = f"the handler takes no such argument{self._advice(name)}"
                raise PayloadError(self.job_type, str(name), why, index)
        for name in (*self.positional, *sorted(self.required)):
            if name in self.required and name not in given:
                first = next((n for n in self.positional[:1] if n in _NOT_OF_A_PAYLOAD), None)
                hint = f"; {first} counts as an argument, unless the type has takes_context=True"
                raise PayloadError(self.job_type, name, f"missing{hint * bool(first)}", index)

    def write(self, given: dict[str, Any], index: int | None = None) -> str:
        """Return the JSON text of values by field, such as an upgraded payload. Raises
        PayloadError."""
        try:
            text = encode(given).decode()
        except _UNENCODABLE as error:
            self._refuse_unencodable(error, given, index)
        if not PLAIN.issuperset(map(type, given.values())):
            self._refuse(unstorable, given.items(), index)
        if "\\u0000" in text:
            self._refuse_nul(given, index)
        return text

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
    ) -> dict[str, Any]:
        # inspect.Signature.bind would take longer than encoding and check together.
        if len(args) > len(self.positional):
            most = f"at most {plural(len(self.positional), 'positional argument')}, not {len(args)}"
            context = "" if self.context is None else f"; {self._explain_context()}"
            raise PayloadError(self.job_type, None, f"the handler takes {most}{context}", index)
        given = dict(zip(self.positional, args, strict=False)) if args else {}
        if self._fields:
            kwargs = {self._fields.get(name, name): kwargs[name] for name in kwargs}
        if given and not given.keys().isdisjoint(kwargs):
            twice = next(name for name in given if name in kwargs)
            raise PayloadError(self.job_type, twice, "given twice, by position and by name", index)
        given.update(kwargs)
        return given

    def _explain_context(self) -> str:
        return f"with takes_context=True its first parameter, {self.context}, is the Context"

    def _advice(self, unknown: object) -> str:
        if unknown == self.context:
            return f"; {self._explain_context()}"
        near = difflib.get_close_matches(str(unknown), self.names, 1)
        if near:
            return f"; did you mean {near[0]!r}?"
        return f"; it takes {', '.join(sorted(self.names))}" if self.names else "; it takes none"

    def _refuse(
        self, find: Callable[[Any], Fault | None], parts: Iterable[Any], index: int | None
    ) -> None:
        try:
            found = find_first(find, parts)
        except RecursionError as error:
            raise PayloadError(self.job_type, None, _reason(error), index) from None
        if found is not None:
            raise PayloadError(self.job_type, *found, index)

    def _refuse_nul(self, given: dict[str, Any], index: int | None) -> None:
        for name, value in given.items():
            if _NUL.search(encode({name: value})):
                raise PayloadError(
                    self.job_type, str(name), "text with a NUL character cannot be stored", index
                )

    def _refuse_mismatch(
        self,
        error: msgspec.ValidationError,
        given: dict[str, Any],
        index: int | None,
        stored: str | bytes | None = None,
    ) -> NoReturn:
        match = _WHERE.fullmatch(str(error))
        reason, path = (match[1], match[2].removeprefix(".")) if match else (str(error), "")
        missing = _MISSING.fullmatch(reason)
        if missing:
            unknown = self._find_unknown(stored) if stored and not path else ()
            path, reason = f"{path}.{missing[1]}".removeprefix("."), "missing"
            if unknown:
                fields = plural(len(unknown), "other field")
                reason = f"missing, and the payload has {fields}: was the argument renamed?"
        value = given.get(path)
        if "got `object`" in reason and value is not None and not isinstance(value, Mapping):
            reason = f"{reason}, a {type(value).__name__}; pass its id"
        reason = self._word(path, reason)
        raise PayloadError(self.job_type, path or None, reason, index) from None

    def _word(self, path: str, reason: str) -> str:
        """Return what is wrong with a field, without the value of a hidden field."""
        if self.hides and re.split(r"[.\[]", path)[0] in self.secret | self.personal:
            reason = _QUOTED_VALUE.sub(MASK, reason)
        return _lower_first(reason)

    def _refuse_unencodable(
        self, error: Exception, given: dict[str, Any], index: int | None
    ) -> NoReturn:
        # The encoder does not say which argument fails: try each alone.
        for name, value in given.items():
            try:
                encode({name: value})
            except _UNENCODABLE as own:
                raise PayloadError(self.job_type, str(name), _reason(own), index) from None
        raise PayloadError(self.job_type, None, _reason(error), index) from None


class SealingCodec(Codec):
    """The codec of a type with secret or personal arguments."""

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None = None
    ) -> str:
        """As of any codec; secret arguments are checked in clear, then sealed. Raises
        ConfigurationError too, without a key to seal with."""
        given = self._bind(args, kwargs, index)
        for name in self.secret & given.keys():
            if isinstance(given[name], Secret):
                given[name] = given[name].reveal()
        return self.seal(super().encode((), given, index), index)


_NONE: frozenset[str] = frozenset()
_NOT_OF_A_PAYLOAD = frozenset({"context", "ctx", "self"})
"""What a first parameter is called that no argument is meant for."""
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_WHERE = re.compile(r"(.*) - at (?:`key` in )?`\$(.*)`", re.DOTALL)
_MISSING = re.compile("Object missing required field `(.*)`")
_QUOTED_VALUE = re.compile(r"(?<=value )['\"].*['\"]|(?<=value )[-0-9.]+", re.DOTALL)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return "nested too deeply, or it contains itself"
        case UnicodeEncodeError():
            return "text with a lone surrogate cannot be stored"
        case _:
            return _lower_first(str(error))


def _lower_first(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]


def _list_texts(value: Any) -> list[str]:
    """Return the texts and the numbers in a value of JSON, as texts."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for part in value.values() for text in _list_texts(part)]
        case list():
            return [text for part in value for text in _list_texts(part)]
        case int() | float() if not isinstance(value, bool):
            return [str(value)]
        case Secret():  # a default of the handler
            return _list_texts(msgspec.to_builtins(value.reveal(), enc_hook=to_json))
        case _:
            return []


def _list_sealed(value: Any) -> list[dict[str, str]]:
    """Return the sealed values in a value of JSON, at any depth."""
    if is_sealed(value):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [sealed for part in parts for sealed in _list_sealed(part)]


def refuse_mask(
    job_type: str, fields: Collection[str], payload: Mapping[str, Any], index: int | None = None
) -> None:
    """Raise PayloadError if a field has the mask: it was copied from a screen."""
    for name in fields:
        if payload.get(name) == MASK:
            why = f"{MASK} is what is shown instead of the value; give the value"
            raise PayloadError(job_type, name, why, index)


def encode_untyped(job_type: str, arguments: dict[str, Any]) -> str:
    """Return the JSON text of arguments for a type that this process lacks. Raises PayloadError."""
    given = {
        n: argument.seal() if isinstance(argument, Secret) else argument
        for n, argument in arguments.items()
    }
    text = Codec.of(_takes_anything, job_type=job_type, takes_context=False).encode(
        (), {"payload": given}
    )
    return text[len('{"payload":') : -1]


def _takes_anything(payload: dict[str, Any]) -> None: ...
