"""Where `run_twice` kills a handler: in its calls of Rota, before they commit anything."""

from __future__ import annotations

import gc
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rota.declare.context import Context
from rota.declare.job_type import NewJob
from rota.model.effect import EffectAnswer, EffectCall
from rota.model.outcome import Errored, Succeeded
from rota.worker.attempt import Attempt
from rota.worker.by_hand import ByHand, pick_one

PLACES_MAX = 10
"""Most places at which a handler is killed."""
END = "its end"
"""The last place: the handler has returned, and its success is not written."""


class Killed(BaseException):
    """Ends a handler where a kill would."""


class KilledRun(ByHand):
    """One run of a job, until its handler is killed or ends. Keeps effects and finishes the job as
    the worker does. From any thread of the handler."""

    def __init__(self, job: int, tried: set[str], aim: str | None = None) -> None:
        """Kill at `aim`, or at the first place that is not in `tried`, and add it there."""
        super().__init__(pick_one(job))
        self.job = job
        self._tried = tried
        self.aim = aim
        self._keeper: Any = None
        self._completer: Any = None
        self._lock = threading.Lock()
        self._enqueues = 0
        self._open: set[str] = set()
        """Begun effects that a kill would leave for a person to decide."""
        self.place = END
        """The place where the run ended."""
        self.has_come = aim in (None, END)
        """Whether the run came to the place of its kill."""
        self.is_lost = False
        """Whether its outcome was not written."""
        self.unasked: list[str] = []
        """Done effects about which the run did not ask."""

    @contextmanager
    def around(self, context: Context) -> Iterator[None]:
        """Stand between the handler and its worker."""
        for item in context.items:
            self._keeper, self._completer = item._effects, item._completer
            item._effects = item._completer = self
        yield

    @contextmanager
    def around_enqueue(self, jobs: Sequence[NewJob]) -> Iterator[None]:
        """Kill the handler before a call that enqueues."""
        with self._lock:
            self._enqueues += 1
            self._reach(f"enqueue {self._enqueues}")
        yield

    def call(self, context: Context, call: EffectCall) -> EffectAnswer:
        """Write what the handler tells of an effect."""
        self._begin(call)
        return self._end(call, self._keeper.call(context, call))

    async def acall(self, context: Context, call: EffectCall) -> EffectAnswer:
        """As `call`, on the worker's loop."""
        self._begin(call)
        return self._end(call, await self._keeper.acall(context, call))

    def complete(self, context: Context, connection: Any, result_json: str | None) -> Any:
        """Kill the handler before it finishes its job in its own transaction."""
        with self._lock:
            self._reach("the commit that finishes its job")
        return self._completer.complete(context, connection, result_json)

    def open(self) -> Any:
        return self._completer.open()

    def aopen(self) -> Any:
        return self._completer.aopen()

    def _begin(self, call: EffectCall) -> None:
        """Kill the handler before an effect, or before the result of a repeated effect is kept."""
        with self._lock:
            if call.if_uncertain == "repeat":
                self._reach(f"the result of {call.name}" if call.verb == "finish" else None)
            else:
                self._reach(call.name if call.verb == "intend" else None)
                self._open.add(call.name)

    def _end(self, call: EffectCall, answer: EffectAnswer) -> EffectAnswer:
        with self._lock:
            if answer.state != "begun":
                self._open.discard(call.name)
        return answer

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

    def note_end(self, attempt: Attempt) -> None:
        """Write nothing of an attempt that was killed or runs again."""
        outcome, is_killed = attempt.outcome, self.place != END
        if attempt.context is not None:  # otherwise it ran in another process
            self.unasked = attempt.context._unasked_effects
        if is_killed and isinstance(outcome, Errored):
            _close_left(outcome.error)
        is_lost = is_killed or (isinstance(outcome, Succeeded) and self.aim != END)
        self.is_lost = is_lost and not attempt.completes
        if self.is_lost:
            attempt.lose()


def _close_left(error: BaseException) -> None:
    """Close what a killed handler had open, as the end of its process would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        traceback.clear_frames(error.__traceback__)
        gc.collect()
