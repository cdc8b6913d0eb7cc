"""What is easily forgotten of a job type, as its options and the code of its handler show it. Pure:
no handler runs."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

from rota.declare.declaration import Declaration
from rota.declare.options import JobTypeOptions
from rota.declare.program import run_program
from rota.model.units import words

FUNCTIONS_MAX = 1_000
"""Of one handler's code so many functions are read."""
GUARDS = frozenset({"effect", "step", "transaction", "complete", "write_file"})
"""What a handler calls so that a second attempt repeats nothing."""
MAIL = frozenset(
    {
        "aiosmtplib", "django.core.mail", "emails", "fastapi_mail", "flask_mail", "postmarker",
        "resend", "sendgrid", "smtplib",
    }
)  # fmt: skip
NETWORK = MAIL | {
    "aiohttp", "anthropic", "boto3", "botocore", "ftplib", "googleapiclient", "grpc", "http.client",
    "httpx", "httpx2", "niquests", "openai", "paramiko", "requests", "slack_sdk",
    "stripe", "twilio", "urllib.request", "urllib3", "websockets", "zeep",
}  # fmt: skip
_TIMEOUT_S = JobTypeOptions.check({}).timeout_s
_MAILS = {"mail", "mails", "email", "emails"}
_FUNCTIONS = (FunctionType, MethodType)


class Hint(NamedTuple):
    """What may be missing from a job type."""

    job_type: str
    place: str
    """File and line of its handler."""
    about: Literal["repeated", "timeout", "expires"]
    message: str
    """What is so, and what to do."""


@dataclass(frozen=True, slots=True)
class _Uses:
    """What the code of a handler names: its own, and that of the functions of its package which it
    reaches by name."""

    names: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)

    def find(self, known: Iterable[str]) -> str | None:
        """Return the first of these modules of which the code uses something; None: of none."""
        return next((one for one in sorted(known) if self._has(one)), None)

    def _has(self, known: str) -> bool:
        parent, _, last = known.rpartition(".")
        return (parent in self.modules and last in self.names) or any(
            one == known or one.startswith(f"{known}.") for one in self.modules
        )


def find_hints(types: Iterable[Declaration]) -> list[Hint]:
    """Return what may be missing from job types, in their order. Rota's own kinds are left out:
    what must happen once there, the receiver or a table knows."""
    return [
        Hint(one.name, str(one.place), about, message)
        for one in types
        if not one.func.__module__.startswith("rota.")
        for about, message in _judge(one, _read(one.func))
    ]


def _judge(
    job_type: Declaration, uses: _Uses
) -> Iterator[tuple[Literal["repeated", "timeout", "expires"], str]]:
    options = job_type.options
    if options.max_attempts > 1 and options.key is None and not uses.names & GUARDS:
        advice = (
            "let it run once, with max_attempts=1"
            if run_program.__name__ in uses.names
            else "give unique=, and ctx.effect around what must not be repeated"
        )
        yield (
            "repeated",
            f"has up to {options.max_attempts} attempts, and neither a key nor an effect: unless a "
            f"second run changes nothing, {advice}",
        )
    network = uses.find(NETWORK)
    if network is not None and options.timeout_s >= _TIMEOUT_S:
        yield (
            "timeout",
            f"uses {network}, and an attempt may take {words(options.timeout_s)}: give timeout=, "
            'such as "15s"',
        )
    said = re.split(r"[^a-z]+", f"{job_type.name} {job_type.func.__name__}".lower())
    if options.expires_s is None and (_MAILS & {*said} or uses.find(MAIL) is not None):
        yield "expires", 'seems to send mail, maybe days late: give expires=, such as "24h"'


def _read(handler: Callable[..., Any]) -> _Uses:
    uses, seen = _Uses(), set[CodeType]()
    home = str(getattr(handler, "__module__", "")).partition(".")[0]
    found: list[Any] = [handler]
    while found and len(seen) < FUNCTIONS_MAX:
        one = found.pop()
        owner, function = getattr(one, "__self__", None), getattr(one, "__func__", one)
        found += [inspect.unwrap(function)] if hasattr(function, "__wrapped__") else []
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        names = set(_list_names(code, uses.modules))
        scope: dict[str, Any] = {**function.__globals__, **dict(_read_cells(function))}
        for name in names:
            value: Any = scope.get(name, getattr(type(owner), name, None))
            # By its type, never by isinstance: that asks a lazy object, such as Django's settings.
            if issubclass(type(value), ModuleType):
                uses.modules.add(value.__name__)
                continue
            uses.names.add(name)
            has_module = issubclass(type(value), (*_FUNCTIONS, type))
            module = str((value if has_module else type(value)).__module__)
            uses.modules.add(module)
            if issubclass(type(value), _FUNCTIONS) and module.partition(".")[0] == home:
                found.append(MethodType(value, owner) if name not in scope else value)
    return uses


def _read_cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is assigned later
            yield name, cell.cell_contents


def _list_names(code: CodeType, modules: set[str]) -> Iterator[str]:
    """Yield the names of globals, free variables and attributes in a function's code, and of the
    functions within; add what it imports to `modules`."""
    yield from (*code.co_names, *code.co_freevars)
    modules.update(one.argval for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant, modules)
