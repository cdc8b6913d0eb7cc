"""Calls a handler within what the application put around its attempts.

The first around is the outermost. All are entered where the handler runs: in its thread, its task
or its process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from rota.declare.around import apass_errors_on, make_manager, pass_errors_on

if TYPE_CHECKING:
    from rota.declare.around import Around
    from rota.declare.context import Context

T = TypeVar("T")


def call_within(
    arounds: Sequence[Around], context: Context, call: Callable[[], Any], read: Callable[[Any], T]
) -> T:
    """Call a plain handler and read what it returned, before any context manager is left."""
    with ExitStack() as stack:
        for around in arounds:
            manager = make_manager(around, context, may_await=False)
            manager.__enter__()
            stack.push(pass_errors_on(manager.__exit__))
        return read(call())


async def acall_within(
    arounds: Sequence[Around],
    context: Context,
    call: Callable[[], Awaitable[Any]],
    read: Callable[[Any], T],
) -> T:
    """As `call_within`, for an async handler. Of a context manager that is both, the async half
    counts."""
    async with AsyncExitStack() as stack:
        for around in arounds:
            manager = make_manager(around, context, may_await=True)
            if hasattr(type(manager), "__aenter__"):
                await manager.__aenter__()
                stack.push_async_exit(apass_errors_on(manager.__aexit__))
            else:
                manager.__enter__()
                stack.push(pass_errors_on(manager.__exit__))
        return read(await call())
