"""Functions that an application puts around its attempts and its enqueues.

Each returns a context manager. An error passes through it and never ends in it: a job that failed
must not succeed because somebody logged its error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

from rota.declare.context import Context
from rota.declare.declaration import Declaration
from rota.declare.job_type import NewJob
from rota.errors import DeclarationError, UsageError

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Around = Callable[["Context"], Manager]
"""A function around one attempt."""
EnqueueAround = Callable[
    [Sequence["NewJob"]], AbstractContextManager["Mapping[str, Any] | None", bool | None]
]
"""A function around one call that enqueues; its mapping is added to the meta of the jobs."""

Exit = Callable[["type[BaseException] | None", "BaseException | None", "TracebackType | None"], Any]


def list_arounds(given: Any) -> list[Any]:
    """Return what `App(middleware=…)` was given, one function or several, as a list."""
    return list(given) if isinstance(given, Iterable) else [given]


def check_around(around: Any, option: str) -> Any:
    """Return a function that goes around attempts or enqueues. Raises DeclarationError."""
    made = (AbstractContextManager, AbstractAsyncContextManager)
    if not callable(around) or isinstance(around, made):
        raise DeclarationError(
            f"App: {option} must be a function that returns a context manager, not {around!r}"
        )
    decorator = None
    if inspect.isgeneratorfunction(around):
        decorator = "@contextlib.contextmanager"
    elif inspect.isasyncgenfunction(around):
        decorator = "@contextlib.asynccontextmanager"
    if decorator is not None:
        raise DeclarationError(f"App: {option} {name_of(around)} needs {decorator} above it")
    if inspect.iscoroutinefunction(around):
        raise DeclarationError(
            f"App: {option} {name_of(around)} returns a coroutine: give it one `yield`, and "
            "@contextlib.asynccontextmanager above it"
        )
    return around


def check_enqueue_around(around: Any, option: str) -> Any:
    """Return a function that goes around enqueues. Raises DeclarationError."""
    if is_async(check_around(around, option)):
        raise DeclarationError(
            f"App: {option} {name_of(around)} is async, and plain code enqueues too: it must "
            "return a plain context manager"
        )
    return around


def refuse_unfit(arounds: Iterable[Around], types: Iterable[Declaration]) -> None:
    """Raise DeclarationError for an async context manager around a plain handler."""
    plain = next((job_type.name for job_type in types if not job_type.is_async), None)
    for around in arounds:
        if plain is not None and is_async(around):
            raise DeclarationError(f"App: {_explain_unfit(around, plain)}")


def is_async(around: Callable[..., Any]) -> bool:
    """Whether a function shows, before it is called, that it returns an async context manager."""
    return inspect.isasyncgenfunction(inspect.unwrap(around))


def make_manager(around: Callable[[Any], Any], value: Any, *, may_await: bool) -> Any:
    """Return the context manager that a function around an attempt or an enqueue makes. Raises
    UsageError if it makes something else, or an async one where nothing can await it."""
    made = around(value)
    kind = type(made)
    if hasattr(kind, "__enter__") or (may_await and hasattr(kind, "__aenter__")):
        return made
    if hasattr(kind, "__aenter__"):
        job_type = getattr(getattr(value, "job", None), "job_type", None)
        raise UsageError(_explain_unfit(around, job_type))
    if inspect.iscoroutine(made):
        made.close()
    raise UsageError(f"around {name_of(around)}: it must return a context manager, not {made!r}")


def pass_errors_on(leave: Exit) -> Exit:
    """Return the exit of a context manager without its right to swallow an error."""

    def leave_and_pass_on(*raised: Any) -> None:
        leave(*raised)

    return leave_and_pass_on


def apass_errors_on(leave: Callable[..., Any]) -> Callable[..., Any]:
    """As `pass_errors_on`, for an async context manager."""

    async def leave_and_pass_on(*raised: Any) -> None:
        await leave(*raised)

    return leave_and_pass_on


def name_of(around: object) -> str:
    return getattr(around, "__qualname__", None) or repr(around)


def _explain_unfit(around: object, job_type: str | None) -> str:
    whose = "where plain code runs" if job_type is None else f"the handler of {job_type!r} is plain"
    return (
        f"around {name_of(around)}: its context manager is async, and {whose}: nothing can be "
        "awaited in its thread; make the handler async, or return one with __enter__ as well"
    )
