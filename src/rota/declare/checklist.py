"""What a job type may lack, as its options and its handler's code show. Pure: no handler runs."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal, NamedTuple

from rota.declare.declaration import Declaration
from rota.declare.options import JobTypeOptions
from rota.declare.program import run_program
from rota.model.units import words

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


class Hint(NamedTuple):
    """What may be missing from a job type."""

    job_type: str
    place: str
    """File and line of the handler."""
    about: Literal["repeated", "timeout", "expires"]
    message: str
    """The problem."""
    cure: str


def find_hints(types: Iterable[Declaration]) -> list[Hint]:
    """Return what may be missing from job types, in their order; nothing of Rota's own kinds."""
    return [
        Hint(job_type.name, str(job_type.place), about, message, cure)
        for job_type in types
        if not job_type.func.__module__.startswith("rota.")
        for about, message, cure in _judge(job_type, *_read(job_type.func))
    ]


def _judge(
    job_type: Declaration, names: set[str], modules: set[str]
) -> Iterator[tuple[Literal["repeated", "timeout", "expires"], str, str]]:
    options = job_type.options
    network = _find_first(NETWORK, names, modules)
    # Without arguments and network it is what a schedule runs to tidy up: it has no key to give.
    is_sweep = not job_type.codec.names and network is None and job_type.chunk is None
    may_repeat = options.max_attempts > 1 and options.key is None and not names & GUARDS
    if may_repeat and (not is_sweep or run_program.__name__ in names):
        advice = (
            "let it run once, with max_attempts=1"
            if run_program.__name__ in names
            else "give unique=, and ctx.effect around what must not be repeated"
        )
        yield (
            "repeated",
            f"has up to {options.max_attempts} attempts, and neither a key nor an effect",
            "A job may run twice, after an error or a crash. Unless a second run changes nothing, "
            f"{advice}.",
        )
    if network is not None and options.timeout_s >= _TIMEOUT_S:
        yield (
            "timeout",
            f"uses {network}, and an attempt may take {words(options.timeout_s)}",
            'Give timeout=, such as "15s".',
        )
    said = re.split(r"[^a-z]+", f"{job_type.name} {job_type.func.__name__}".lower())
    mail = _find_first(MAIL, names, modules)
    if options.expires_s is None and (_MAILS & {*said} or mail is not None):
        yield "expires", "seems to send mail, maybe days late", 'Give expires=, such as "24h".'


def _find_first(known: Iterable[str], names: set[str], modules: set[str]) -> str | None:
    """Return the first known module that the code uses; None: it uses none."""
    for wanted in sorted(known):
        parent, _, last = wanted.rpartition(".")
        is_imported = any(f"{module}.".startswith(f"{wanted}.") for module in modules)
        if is_imported or (parent in modules and last in names):
            return wanted
    return None


def _read(handler: Callable[..., Any]) -> tuple[set[str], set[str]]:
    """Return the names that a handler and functions of its package reach, and their modules."""
    names, modules, seen = set[str](), set[str](), set[CodeType]()
    home = handler.__module__.partition(".")[0]
    found: list[Any] = [inspect.unwrap(handler)]
    while found:
        function = found.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        scope = dict(function.__globals__)
        with suppress(ValueError):  # one of them is not assigned yet
            scope |= inspect.getclosurevars(function).nonlocals
        for name in _list_names(code, modules):
            value: Any = scope.get(name)
            # By its type, never by isinstance: that asks a lazy object, such as Django's settings.
            kind = type(value)
            if issubclass(kind, ModuleType):
                modules.add(value.__name__)
                continue
            module = str((value if issubclass(kind, FunctionType | type) else kind).__module__)
            names.add(name)
            modules.add(module)
            if issubclass(kind, FunctionType) and module.partition(".")[0] == home:
                found.append(inspect.unwrap(value))
    return names, modules


def _list_names(code: CodeType, modules: set[str]) -> Iterator[str]:
    """Yield the names in a function's code and in inner functions; add its imports to `modules`."""
    modules.update(
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname == "IMPORT_NAME"
    )
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant, modules)
