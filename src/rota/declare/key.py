"""Makes the keys and the cost of a job, each by a function of the handler's arguments, or by a text
with their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from string import Formatter
from types import FunctionType
from typing import Any
from uuid import UUID

from rota.errors import DeclarationError, UsageError
from rota.model.bounds import KEY_MAX, check_text

PlainKey = str | int | UUID
"""A key of a rate limit or of a breaker, from a person or a function."""
PlainKeyFunction = Callable[..., PlainKey] | str
"""What makes a plain key from the arguments of a handler: a function, or "account:{account}"."""


_RETURN = (lambda argument: argument).__code__.co_code
"""The code of a function that returns its only argument. A call with a probe would not tell:
`TENANTS.get(name, name)` returns most values as they are."""


class KeyMaker:
    """Makes keys with the function of an option."""

    arguments: tuple[str, ...]
    """The handler's arguments that the function takes."""
    returns_argument: bool
    """Whether the function returns its only argument, as `lambda account: account` does."""
    is_plain: bool
    """Whether the payload has the key as it is, so that no row of a job says it."""

    def __init__(
        self,
        func: Callable[..., Any] | str,
        *,
        option: str,
        job_type: str,
        names: frozenset[str],
        defaults: Mapping[str, Any],
        secret: frozenset[str],
        plain: frozenset[str],
    ) -> None:
        """Raises DeclarationError for an async function, or for other or secret arguments.

        `plain` are the arguments that the payload has as they are.
        """
        self._job_type = job_type
        self._what = f"{option} text {func!r}" if isinstance(func, str) else _describe(option, func)
        if isinstance(func, str):
            func = self._read_text(func)
        self._func = func
        if inspect.iscoroutinefunction(func):
            raise self._wrong("must be a plain function: it is called before any await")
        try:
            parameters = inspect.signature(func).parameters.values()
        except (ValueError, TypeError) as error:
            raise self._wrong(f"has no signature that can be read: {error}") from None
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise self._wrong(
                    f"is called with named arguments, so it cannot take {str(parameter)!r}"
                )
            if parameter.name not in names:
                takes = f"it takes {', '.join(sorted(names))}" if names else "it takes none"
                raise self._wrong(
                    f"takes {parameter.name!r}, which is no argument of the handler; {takes}"
                )
            if parameter.name in secret:
                raise self._wrong(
                    f"takes {parameter.name!r}, which is a Secret: what it makes is stored in clear"
                )
        self.arguments = tuple(parameter.name for parameter in parameters)
        self.returns_argument = (
            len(self.arguments) == 1
            and isinstance(func, FunctionType)
            and func.__code__.co_code == _RETURN
        )
        self.is_plain = self.returns_argument and self.arguments[0] in plain
        self._defaults = {name: defaults[name] for name in self.arguments if name in defaults}

    def find(self, payload: Mapping[str, Any]) -> Any:
        """Return the argument that the function returns, as a payload has it; None: no argument."""
        if not self.returns_argument:
            return None
        [name] = self.arguments
        return payload.get(name, self._defaults.get(name))

    def find_place(self) -> dict[str, Any]:
        """Return where the row of a job says the key, as in `job_type.asks_from`."""
        if not self.returns_argument:
            return {}
        [name] = self.arguments
        default = self._defaults.get(name)
        known = {"default": default} if isinstance(default, str | int) else {}
        return {"argument": name, "is_plain": self.is_plain, **known}

    def make(
        self,
        arguments: Mapping[str, Any],
        index: int | None = None,
        check: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the key for the arguments of a payload, or what `check` returns of it. Raises
        UsageError: the function raised, or returned something else."""
        given = {
            name: arguments[name] if name in arguments else self._defaults[name]
            for name in self.arguments
        }
        try:
            made = self._func(**given)
        except Exception as error:
            why = f"raised {type(error).__name__}: {error}; nothing was inserted"
            raise UsageError(f"{self._name(index)} {why}") from error
        try:
            return (check or _check_key)(made)
        except UsageError as error:
            raise UsageError(f"{self._name(index)}: {error}; nothing was inserted") from None

    def refuse_unknown(self, unknown: Collection[str], index: int | None = None) -> None:
        """Raise UsageError if it takes an argument that is not known yet."""
        for name in self.arguments:
            if name in unknown:
                raise UsageError(
                    f"{self._name(index)} takes {name!r}, which is the result of another job and "
                    "not known yet: make it of other arguments, or name a key or a group key, as "
                    "in .using(key=…).new(…)"
                )

    def _read_text(self, text: str) -> Callable[..., str]:
        """Return the function that a text such as "export:{user_id}" stands for."""
        try:
            fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
        except ValueError as error:
            raise self._wrong(f"cannot be read: {error}") from None
        for field in fields:
            if not field.isidentifier():
                raise self._wrong(f"has {{{field}}}: braces take the name of an argument alone")

        def fill(**arguments: Any) -> str:
            for name, value in arguments.items():
                if value is None:  # all jobs without a value would have the same key
                    raise UsageError(f"{name} is None; a function can say which key that makes")
            return text.format(**arguments)

        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in dict.fromkeys(fields)
        ]
        fill.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return fill

    def _name(self, index: int | None) -> str:
        at = "" if index is None else f" (job {index} of the list)"
        return f"job type {self._job_type!r}{at}: its {self._what}"

    def _wrong(self, why: str) -> DeclarationError:
        return DeclarationError(f"job type {self._job_type!r}: the {self._what} {why}")


def _describe(option: str, func: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(func), "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(func)
    return f"{option} function at {place}"


def check_function(value: Any, name: str, example: str) -> Any:
    """Return what makes a key of the handler's arguments, or None. Raises UsageError."""
    is_text = isinstance(value, str) and "{" in value  # without, all jobs would have the same key
    if value is not None and not is_text and not callable(value):
        raise UsageError(
            f"{name} must be a text with names of the handler's arguments in braces, as in "
            f"{example!r}, or a function of them, not {value!r}"
        )
    return value


def check_plain_key(value: Any, name: str = "what it returns") -> str:
    """Return the text of a key of a rate limit or a breaker. Raises UsageError."""
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    return check_text(value, name, KEY_MAX)


def _check_key(value: Any) -> str:
    return check_text(value, "what it returns", KEY_MAX)
