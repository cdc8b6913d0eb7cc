"""One definition of a call makes two methods: for plain code, and for code that awaits."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine, Generator
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack

from rota.declare.named_options import read_signature
from rota.store.db import RunOptions
from rota.store.driver import Operation

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Awaitable(Protocol[P, T_co]):
    """The awaited method, as a type checker sees it."""

    def __get__(self, instance: object, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T_co]]:
        """Return the method of a client."""


class Both(Protocol[P, T_co]):
    """The method for plain code, as a type checker sees it."""

    def __get__(self, instance: object, owner: type[Any]) -> Callable[P, T_co]:
        """Return the method of a client."""


def both(define: Callable[Concatenate[Any, P], Generator[Any, Any, T]]) -> Both[P, T]:
    """Make the two methods of a definition, which `_run` and `_arun` of its class run: of an
    operation on its `connection`, or of steps."""
    made: Both[P, T] = _make(define)
    return made


def both_atomic(define: Callable[Concatenate[Any, P], Operation[T]]) -> Both[P, T]:
    """As `both`, in one transaction."""
    made: Both[P, T] = _make(define, atomic=True)
    return made


def awaitable(method: Both[P, T]) -> Awaitable[P, T]:
    """Return the awaited method: `alist = awaitable(list)`."""
    made: Awaitable[P, T] = vars(method)["awaited"]
    return made


def in_thread(call: Callable[Concatenate[Any, P], T]) -> Awaitable[P, T]:
    """Return the awaited method of a call that is no operation: it runs in a thread."""
    run = asyncio.to_thread

    async def acall(self: Any, /, *args: Any, **named: Any) -> Any:
        return await run(call, self, *args, **named)

    made: Awaitable[P, T] = _name_awaited(acall, call)
    return made


def _make(define: Any, **options: Unpack[RunOptions]) -> Any:
    signature = read_signature(define)
    joins = "connection" in signature.parameters

    def call(self: Any, /, *args: Any, **named: Any) -> Any:
        connection = named.get("connection") if joins else None
        return self._run(define(self, *args, **named), connection, **options)

    async def acall(self: Any, /, *args: Any, **named: Any) -> Any:
        connection = named.get("connection") if joins else None
        return await self._arun(define(self, *args, **named), connection, **options)

    doc = inspect.cleandoc(define.__doc__ or "")
    made: Any = _name(call, define, signature, define.__name__, doc)
    made.awaited = _name_awaited(acall, define)
    return made


def _name_awaited(body: Any, define: Any) -> Any:
    name, doc = define.__name__, inspect.cleandoc(define.__doc__ or "")
    first = doc.partition("\n\n")[0]
    doc = f"{first}\n\nAs `{name}`, to be awaited."
    return _name(body, define, read_signature(define), f"a{name}", doc)


def _name(body: Any, define: Any, signature: inspect.Signature, name: str, doc: str) -> Any:
    """Let a method look as if it were written out, in tracebacks and to `help`.

    It does not say that it wraps the definition: FastAPI would take it for a generator.
    """
    qualname = f"{define.__qualname__.rpartition('.')[0]}.{name}"
    code = body.__code__.replace(co_name=name, co_qualname=qualname)
    # In the definition's module, which has the names of its annotations.
    made: Any = FunctionType(code, define.__globals__, name, None, body.__closure__)
    returned = re.sub(r"^(?:Operation|Steps)\[(.*)\]$", r"\1", define.__annotations__["return"])
    made.__qualname__, made.__doc__ = qualname, doc
    made.__annotations__ = {**define.__annotations__, "return": returned}
    made.__signature__ = signature.replace(return_annotation=returned)
    return made
