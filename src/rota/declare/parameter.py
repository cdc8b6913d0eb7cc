"""The types that a handler's parameter may have, and values that msgspec needs help with. Pure."""

from __future__ import annotations

import inspect
import keyword
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.declare.secret import Secret, hides_within, inner_of, is_personal, is_sealed
from rota.declare.storable import is_pydantic
from rota.errors import DeclarationError


def field_of(name: str) -> str:
    """Return the name of the payload's field that fills a parameter: `from` for `from_`."""
    bare = name.removesuffix("_")
    return bare if keyword.iskeyword(bare) else name


def type_of(parameter: inspect.Parameter, known: dict[str, Any], *, job_type: str) -> Any:
    """Return the annotation of a parameter, with names from `known`; Any without an annotation.
    Raises DeclarationError if a payload cannot fill the parameter, or JSON cannot give its type."""
    where = f"job type {job_type!r}, parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise DeclarationError(
            f"{where}: a handler cannot take {stars}{parameter.name}: a payload has named fields; "
            "declare each as a parameter"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise DeclarationError(
            f"{where}: a handler is called with named arguments, so a parameter cannot be "
            "positional-only; remove the `/`"
        )
    if parameter.annotation is parameter.empty:
        return Any
    hint = _resolve(parameter, known, where)
    try:
        unreadable = find_unreadable(hint)
    except (TypeError, NameError, ValueError, RecursionError) as error:
        raise DeclarationError(f"{where}: its type cannot be read from JSON: {error}") from None
    if unreadable is not None:
        is_context = unreadable.__module__ == "rota.declare.context"
        advice = (
            "declare the job type with takes_context=True"
            if is_context
            else "take its id, or the values that the job needs"
        )
        raise DeclarationError(
            f"{where}: its type {unreadable.__name__} cannot be read from JSON; {advice}"
        )
    return hint


def refuse_hidden(hints: Mapping[str, Any], job_type: str) -> None:
    """Raise DeclarationError for a Secret or a Personal within a type: the database, and what masks
    values, know only the names of arguments."""
    for name, hint in hints.items():
        if hides_within(hint):
            raise DeclarationError(
                f"job type {job_type!r}, argument {name!r}: a Secret or a Personal within another "
                "type is not seen; make it an argument of its own"
            )


def list_private(hints: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names whose types are Secret, and the names whose types are Personal."""
    return (
        frozenset(name for name, hint in hints.items() if inner_of(hint) is not None),
        frozenset(name for name, hint in hints.items() if is_personal(hint)),
    )


def _resolve(parameter: inspect.Parameter, known: dict[str, Any], where: str) -> Any:
    annotation = parameter.annotation
    try:
        # One at a time, so that the error names it. The context and the result do not matter.
        holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
        return typing.get_type_hints(holder, globalns=known, include_extras=True)[parameter.name]
    except NameError as error:
        raise DeclarationError(
            f"{where}: its annotation {annotation!r} cannot be resolved: {error}; "
            "import the name at run time, not only under TYPE_CHECKING, "
            "and define it at module level, before the handler"
        ) from None
    except (SyntaxError, TypeError, AttributeError) as error:
        raise DeclarationError(
            f"{where}: its annotation {annotation!r} cannot be resolved: {error}"
        ) from None


def find_unreadable(hint: Any) -> type | None:
    """Return a class in this type that cannot be read from JSON; None: there is none."""
    for node in _nodes(hint):
        if isinstance(node, msgspec.inspect.CustomType | msgspec.inspect.RawType):
            kind: type = getattr(node, "cls", msgspec.Raw)
            if kind not in (object, Secret) and not is_pydantic(kind):
                return kind
    return None


def may_be_unstorable(hint: Any) -> bool:
    """Whether JSON that fits this type may still be a naive datetime or a Decimal NaN."""
    kinds = msgspec.inspect.DateTimeType | msgspec.inspect.DecimalType
    return any(isinstance(node, kinds) for node in _nodes(hint))


def may_change(hint: Any) -> bool:
    """Whether a worker may read another value, such as a float or an object with fewer fields."""
    own = msgspec.inspect.DataclassType | msgspec.inspect.StructType | msgspec.inspect.TypedDictType
    kinds = own | msgspec.inspect.FloatType | msgspec.inspect.CustomType
    return any(isinstance(node, kinds) for node in _nodes(hint))


def _nodes(hint: Any) -> Iterable[msgspec.inspect.Type]:
    """Every type within a type, each once: types may contain themselves."""
    seen: set[int] = set()
    found: list[msgspec.inspect.Type] = []
    waiting: list[Any] = [msgspec.inspect.type_info(hint)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif (
            isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in seen
        ):
            seen.add(id(node))
            if isinstance(node, msgspec.inspect.Type):
                found.append(node)
            waiting.extend(
                getattr(node, name) for name in node.__struct_fields__ if name != "default"
            )
    return found


def from_json(kind: type, value: Any) -> Any:
    """The decoder's hook: types that msgspec does not decode by itself."""
    if kind is object:
        return value
    inner = inner_of(kind)
    if inner is not None:
        return read_secret(value, inner)
    try:
        return kind.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]
    except ValueError as error:
        # pydantic's text has several lines and the input, which may be private.
        first = (
            error.errors(include_input=False, include_url=False)[0]
            if hasattr(error, "errors")
            else {"loc": (), "msg": str(error)}
        )
        raise ValueError(
            ": ".join([".".join(map(str, first["loc"])) or kind.__name__, str(first["msg"])])
        ) from None


def read_secret(value: Any, inner: Any) -> Secret[Any]:
    """Return the Secret of a sealed value, or of a clear value, from an enqueue or from a time when
    the argument was no Secret. Raises ValueError."""
    if is_sealed(value):
        return Secret._take(value, inner)
    try:
        return Secret(msgspec.convert(value, inner, str_keys=True))
    except msgspec.ValidationError as error:
        raise ValueError(str(error).partition(" - at `$")[0]) from None
