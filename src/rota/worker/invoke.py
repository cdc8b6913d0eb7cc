"""The one call of a handler, within the arounds of the application. The first around is the
outermost. All are entered where the handler runs: in its thread, task or process."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Protocol, TypeVar

from rota.declare.around import Around, apass_errors_on, make_manager, pass_errors_on
from rota.declare.context import Context, enter
from rota.model.outcome import NOTHING, End, refuse_outcome
from rota.model.scrub import Hidden


class HandlerRun(Protocol):
    """What a handler is called for: an attempt, a call of many, or a job in a process of its own.
    All methods are called where the handler runs."""

    @property
    def hidden(self) -> Hidden | None: ...

    def open_context(self) -> Context: ...

    def take_first_step(self, now: float) -> End | None:
        """Note that the handler begins; or return why it may not."""

    def read_return(self, result: Any) -> End: ...

    def read_error(self, error: BaseException) -> End: ...


R = TypeVar("R", bound=HandlerRun)


def invoke(
    run: R,
    call: Callable[[], Any],
    arounds: Sequence[Around],
    now: Callable[[], float],
    tell: Callable[[R, End], None],
) -> None:
    """Call a plain handler, and tell how it ended. It never raises."""
    enter(run)
    end = run.take_first_step(now())
    if end is None:
        try:
            if arounds:
                end = _call_within(run, call, arounds)
            else:
                with _EndCopies():
                    result = call()
                end = NOTHING if result is None else run.read_return(result)
        except BaseException as error:  # noqa: BLE001 - SystemExit too
            end = _read_error(run, error)
    tell(run, end)
    del run, end  # this frame is in the error's traceback, and would keep both


async def ainvoke(
    run: R,
    call: Callable[[], Awaitable[Any]],
    arounds: Sequence[Around],
    now: Callable[[], float],
    tell: Callable[[R, End], None],
) -> None:
    """As `invoke`, for an async handler."""
    enter(run)
    # A blocked loop may have kept it waiting: its time begins now.
    end = run.take_first_step(now())
    if end is None:
        try:
            if arounds:
                end = await _acall_within(run, call, arounds)
            else:
                with _EndCopies():
                    result = await call()
                end = NOTHING if result is None else run.read_return(result)
        except BaseException as error:  # noqa: BLE001 - SystemExit and cancellation too
            end = _read_error(run, error)
    tell(run, end)
    del run, end  # this frame is in the error's traceback, and would keep both


def _read_error(run: HandlerRun, error: BaseException) -> End:
    try:
        return run.read_error(error)
    except BaseException as fault:  # noqa: BLE001 - isinstance asks the error's own class
        return refuse_outcome(fault)


def _call_within(run: HandlerRun, call: Callable[[], Any], arounds: Sequence[Around]) -> End:
    """Call a plain handler; read what it returned before any context manager is left."""
    context = run.open_context()
    with ExitStack() as stack:
        for around in arounds:
            manager = make_manager(around, context, may_await=False)
            manager.__enter__()
            stack.push(pass_errors_on(manager.__exit__))
        with _EndCopies():
            result = call()
        return run.read_return(result)


async def _acall_within(
    run: HandlerRun, call: Callable[[], Awaitable[Any]], arounds: Sequence[Around]
) -> End:
    """As `_call_within`, for an async handler. A context manager's async half is preferred."""
    context = run.open_context()
    async with AsyncExitStack() as stack:
        for around in arounds:
            manager = make_manager(around, context, may_await=True)
            if hasattr(type(manager), "__aenter__"):
                await manager.__aenter__()
                stack.push_async_exit(apass_errors_on(manager.__aexit__))
            else:
                manager.__enter__()
                stack.push(pass_errors_on(manager.__exit__))
        with _EndCopies():
            result = await call()
        return run.read_return(result)


class _EndCopies:
    """Ends a fork that leaves the handler: it would be a second worker on the same connections."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # GeneratorExit: a copy that goes its own way has found another handler's task unused.
        if os.getpid() == self._pid or kind is GeneratorExit:
            return
        if isinstance(error, SystemExit):
            os._exit(error.code if isinstance(error.code, int) else error.code is not None)
        if error is not None:
            sys.excepthook(kind, error, trace)
        os._exit(error is not None)
