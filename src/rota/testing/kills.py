"""Where `run_twice` kills a handler: in its calls of Rota, before they commit anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

from rota.declare.context import Completes, Context
from rota.declare.job_type import NewJob
from rota.declare.journal import KeepsEffects
from rota.model.effect import EffectAnswer, EffectCall

PLACES_MAX = 10
"""Most places at which a handler is killed."""
END = "its end"
"""The last place: the handler has returned, and nothing of its success is written."""


class Killed(BaseException):
    """Ends a handler where a kill would."""


class Kill:
    """The kill of one run. From any thread of its handler."""

    def __init__(self, tried: set[str], aim: str | None = None) -> None:
        """Make one.

        Args:
            tried: the places of earlier kills; that of this one is added.
            aim: the place of this one. Defaults to the first that was not tried.
        """
        self._tried = tried
        self.aim = aim
        self._lock = threading.Lock()
        self._enqueues = 0
        self._open: set[str] = set()
        """The effects that have begun, and that a kill would leave for a person to decide."""
        self.place = END
        """Where the run ended."""
        self.has_come = aim in (None, END)
        """Whether the run came to the place of its kill."""

    @contextmanager
    def around(self, context: Context) -> Iterator[None]:
        """Stand between the handler and its worker."""
        for item in context.items:
            if item._effects is not None:
                item._effects = _Effects(self, item._effects)
            if item._completer is not None:
                item._completer = _Completer(self, item._completer)
        yield

    @contextmanager
    def around_enqueue(self, jobs: Sequence[NewJob]) -> Iterator[None]:
        """Kill the handler before a call that enqueues."""
        with self._lock:
            self._enqueues += 1
            self._reach(f"enqueue {self._enqueues}")
        yield

    def begin_call(self, call: EffectCall) -> None:
        """Kill the handler before an effect; or, where an interrupted one is repeated, before its
        result is kept."""
        with self._lock:
            if call.if_uncertain == "repeat":
                self._reach(f"the result of {call.name}" if call.verb == "finish" else None)
            else:
                self._reach(call.name if call.verb == "intend" else None)
                self._open.add(call.name)

    def end_call(self, call: EffectCall, answer: EffectAnswer) -> EffectAnswer:
        """Note whether an effect is open now."""
        with self._lock:
            if answer.state != "begun":
                self._open.discard(call.name)
        return answer

    def begin_commit(self) -> None:
        """Kill the handler before it finishes its job in its own transaction."""
        with self._lock:
            self._reach("the commit that finishes its job")

    def _reach(self, place: str | None) -> None:
        if self.place != END:
            raise Killed  # in another thread
        if place is None or not self._is_aim(place):
            return
        self.has_come = True
        if not self._open:
            self._tried.add(place)
            self.place = place
            raise Killed

    def _is_aim(self, place: str) -> bool:
        if self.aim is not None:
            return place == self.aim
        return place not in self._tried and len(self._tried) < PLACES_MAX


class _Effects:
    """Keeps effects as the worker does, until the kill."""

    def __init__(self, kill: Kill, keeper: KeepsEffects) -> None:
        self._kill = kill
        self._keeper = keeper

    def call(self, context: Context, call: EffectCall) -> EffectAnswer:
        self._kill.begin_call(call)
        return self._kill.end_call(call, self._keeper.call(context, call))

    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer:
        self._kill.begin_call(call)
        return self._kill.end_call(call, await self._keeper.acall(context, call))


class _Completer:
    """Finishes the job as the worker does, unless the handler is killed before."""

    def __init__(self, kill: Kill, completer: Completes) -> None:
        self._kill = kill
        self._completer = completer

    def complete(self, context: Context, connection: Any, result_json: str | None) -> Any:
        self._kill.begin_commit()
        return self._completer.complete(context, connection, result_json)

    def open(self) -> AbstractContextManager[Any]:
        return self._completer.open()

    def aopen(self) -> AbstractAsyncContextManager[Any]:
        return self._completer.aopen()
