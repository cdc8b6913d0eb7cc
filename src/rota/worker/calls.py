"""Calls of handlers that take many jobs: the runner waits for the attempts of a pack, calls once,
and ends each attempt by itself.

After an error that may be one job's fault each half is called again, in the same slot, until that
job is alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from rota.declare.call_context import CallContext
from rota.declare.context import Context
from rota.declare.declaration import Declaration
from rota.declare.result import count_answers, read_answer
from rota.model.classify import may_be_of_one_job
from rota.model.failure import error_type, message
from rota.model.outcome import (
    NOTHING,
    CallEnd,
    Cancel,
    Dead,
    End,
    Errored,
    HandedBack,
    Interrupted,
    Outcome,
    find_outcome,
    is_stop,
)
from rota.model.scrub import Hidden
from rota.worker.attempt import Attempt
from rota.worker.packs import Pack

logger = logging.getLogger("rota")

NOBODY_LEFT = "all of its jobs were cancelled or lost"


class Call:
    """One call of a handler for several attempts of one type, each with its own claim and lease."""

    __slots__ = (
        *("_context", "_worker", "attempts", "began_at", "called", "pack", "is_part", "items"),
        *("job_type", "obstacles", "stop_why", "task"),
    )

    def __init__(
        self, pack: Pack, attempts: list[Attempt], worker: str, *, is_part: bool = False
    ) -> None:
        self._worker = worker
        self.pack = pack
        self._context: CallContext | None = None
        self.job_type = attempts[0].job_type
        self.attempts = attempts
        self.is_part = is_part
        """Whether it is a half of a call that failed."""
        self.items: list[Any] = []
        """What the handler gets, one item for each attempt. Set once, before the call."""
        self.task: asyncio.Task[None] | None = None
        self.began_at: float | None = None
        self.stop_why: str | None = None
        """Why the handler is asked to stop with all of its jobs."""
        self.called: list[Attempt] = []
        """The attempts whose items the handler got. Written by the caller of the handler."""
        self.obstacles: list[tuple[Attempt, End]] = []
        """The attempts that the handler did not get, with their outcomes. Written by the caller."""

    @property
    def name(self) -> str:
        return f"rota jobs {self.attempts[0].job.id}, …"

    @property
    def hidden(self) -> Hidden | None:
        return self.attempts[0].hidden

    def find_live(self) -> list[Attempt]:
        """Return the attempts whose outcome still depends on the handler."""
        return [
            one
            for one in self.called or self.attempts
            if one.outcome is None and one.stop_outcome is None and not one.is_lost
        ]

    def find_open(self) -> list[Attempt]:
        return [one for one in self.called or self.attempts if one.outcome is None]

    def give_up(self) -> dict[Attempt, End | None]:
        """Make it the last call of its pack: the handler does not end. Return its attempts, with
        the outcomes of attempts that the handler did not get."""
        self.pack.calls.clear()
        return {**dict.fromkeys(self.called), **dict(self.obstacles)}

    def request_stop(self, why: str) -> None:
        self.stop_why = why
        if self._context is not None:
            self._context._request_stop(why)

    # What the caller of the handler asks, in its thread

    def open_context(self) -> Context:
        """Return what the handler sees of the call. Each job's context is made on request."""
        if self._context is None:
            first = self.attempts[0]
            state = first.open_context().state
            jobs = first.job_type.jobs
            self._context = CallContext(first.job, self._worker, state, self._open_items, jobs)
            if self.stop_why is not None:
                self._context._request_stop(self.stop_why)
        return self._context

    def _open_items(self) -> list[Context]:
        return [attempt.open_context() for attempt in self.called]

    def take_first_step(self, now: float) -> End | None:
        """Note that the handler begins with the jobs that still may; or return why it may not."""
        self.began_at = now
        if self.is_part:
            ends = [one.take_another_step(now) for one in self.attempts]
            self.pack.uncalled.difference_update(self.attempts)
        else:
            ends = [one.take_first_step(now) for one in self.attempts]
        self.called = [one for one, end in zip(self.attempts, ends, strict=True) if end is None]
        if len(self.called) < len(ends):
            pairs = zip(self.attempts, ends, strict=True)
            self.obstacles += [(one, end) for one, end in pairs if end is not None]
            self.items[:] = [
                item for item, end in zip(self.items, ends, strict=True) if end is None
            ]
        if self.called:
            return None
        self.began_at = None
        return HandedBack("it was stopped before it began")

    def read_return(self, result: Any) -> End:
        """Return the outcome of each job after the handler returned; one if all have the same."""
        if result is None:
            return NOTHING
        jobs = [attempt.job for attempt in self.called]
        if isinstance(result, Outcome):
            return CallEnd([result] * len(jobs))
        problem = count_answers(len(jobs), result)
        if problem is not None:
            return CallEnd([problem] * len(jobs))
        return CallEnd(
            [
                read_answer(attempt.job, one, attempt.stop_outcome)
                for attempt, one in zip(self.called, result, strict=True)
            ]
        )

    def read_error(self, error: BaseException) -> End:
        """Return the outcome after the handler raised. If all were stopped, each has its own."""
        if is_stop(error) and not self.find_live():
            return HandedBack(NOBODY_LEFT)
        return find_outcome(error) or Errored(error)

    def hand_back_unstarted(self, what: str, error: Exception, now: float) -> End:
        first, *others = self.attempts
        end = first.hand_back_unstarted(what, error, now)
        for attempt in others:
            attempt.began_at = None
        return end

    # How it ended

    def sort_ends(self, end: End) -> list[tuple[Attempt, End]]:
        """Return the outcome of each of its attempts."""
        hindered = {one for one, _ in self.obstacles}
        has_begun = self.began_at is not None
        called = self.called if has_begun else [one for one in self.attempts if one not in hindered]
        if end is NOTHING and not self.obstacles and not [1 for one in called if one.stop_outcome]:
            return [(one, end) for one in called]
        ends = end.ends if isinstance(end, CallEnd) else [end] * len(called)
        found = [(one, _find_own_end(one, its)) for one, its in zip(called, ends, strict=True)]
        return found + self.obstacles

    def find_halves(self, end: End) -> list[Call]:
        """Return a call for each half of the jobs that may be at fault for what the handler raised,
        and take them from this call. None: each job has its own outcome.

        A job that was cancelled may be at fault.
        """
        if len(self.called) < 2 or not self._may_be_of_one_job(end):
            return []
        # Not a job with a single attempt: it may begin once only.
        again = [attempt for attempt in self.find_live() if attempt.max_attempts > 1]
        half = (len(again) + 1) // 2
        gone = set(again)
        self.called = [one for one in self.called if one not in gone]
        self.pack.uncalled |= gone
        halves = [again[:half], again[half:]]
        return [Call(self.pack, part, self._worker, is_part=True) for part in halves if part]

    def _may_be_of_one_job(self, end: End) -> bool:
        match end:
            case Errored(error):
                rules = self.job_type.rules
                return may_be_of_one_job(error, rules.retry_on, rules.fatal_on)
            case Dead() | Cancel():
                return True
            case Outcome():
                return end._of_job is not None
        return False


class CallsOnce(Protocol):
    """A runner that calls a handler for one attempt, or for a `Call`."""

    @property
    def stop_s(self) -> float: ...
    def begin(self, attempts: Sequence[Attempt]) -> None: ...
    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[Call, dict[str, Any]]],
        tell: Callable[[Call, End], None],
    ) -> None: ...
    def tell_unknown(self, job_type: Declaration, fields: frozenset[str]) -> None: ...
    def stop(self, run: Any) -> None: ...


class CallRunner:
    """Calls handlers that take many jobs in one call, by way of the runner of one call."""

    def __init__(
        self, runner: CallsOnce, worker: str, tell: Callable[[Attempt, End], None]
    ) -> None:
        self._runner = runner
        self._worker = worker
        self._tell = tell
        self._going_on: set[Pack] = set()
        """The packs whose next call is being made."""

    @property
    def stop_s(self) -> float:
        return self._runner.stop_s

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call the handler once for each complete pack. An attempt without a pack is alone."""
        packs: dict[Pack, None] = {}
        alone = []
        for attempt in attempts:
            pack = attempt.pack
            if isinstance(pack, Pack):
                pack.handed.add(attempt)
                packs[pack] = None
            else:
                alone.append(attempt)
        if alone:
            self._runner.begin(alone)
        for pack in packs:
            pack.go_on = self._go_on
            self._go_on(pack)

    def stop(self, attempt: Attempt) -> None:
        """Interrupt the call of an attempt that was asked to stop, if the call has no other."""
        if attempt.pack is None:
            self._runner.stop(attempt)
            return
        call = attempt.pack.current
        if isinstance(call, Call) and attempt in call.attempts and not call.find_live():
            is_own = attempt.is_lost or isinstance(attempt.stop_outcome, Cancel)
            why = None if attempt.stopped is None else attempt.stopped.why
            call.request_stop(NOBODY_LEFT if is_own else why or NOBODY_LEFT)
            self._runner.stop(call)

    def close(self) -> None: ...

    def _go_on(self, pack: Pack) -> None:
        """Make the next call of a pack that has all its jobs, unless a call runs. From Python 3.12
        a call may be over before `_begin_call` returns; then this loop goes on."""
        if pack in self._going_on:
            return
        self._going_on.add(pack)
        try:
            while pack.current is None:
                if pack.handed and len(pack.handed) == len(pack.seated):
                    attempts = [one for one in pack.attempts if one in pack.handed]
                    pack.handed.clear()
                    pack.calls.append(Call(pack, attempts, self._worker))
                if not pack.calls:
                    return
                pack.current = call = pack.calls.popleft()
                if not self._begin_call(call):
                    pack.current = None
        finally:
            self._going_on.remove(pack)

    def _begin_call(self, call: Call) -> bool:
        call.items = self._read_items(call)
        if not call.attempts:
            return False
        codec = call.job_type.item_codec
        assert codec is not None
        self._runner.call(call.job_type, [(call, {codec.parameter: call.items})], self._take_end)
        return True

    def _read_items(self, call: Call) -> list[Any]:
        """Return the items of a call. End the attempts whose items cannot be read."""
        for attempt in call.attempts:
            if attempt.outcome is not None:  # it was stopped meanwhile
                self._tell(attempt, attempt.outcome)
        call.attempts = [attempt for attempt in call.attempts if attempt.outcome is None]
        found = call.job_type.read_items([attempt.job for attempt in call.attempts])
        if found is not None:
            items, unknown = found
            self._runner.tell_unknown(call.job_type, unknown)
            return items
        items, attempts = [], []
        for attempt in call.attempts:
            read = attempt.read_item()
            if not isinstance(read, tuple):
                self._tell(attempt, read)
                continue
            items.append(read[0])
            attempts.append(attempt)
            self._runner.tell_unknown(call.job_type, read[1])
        call.attempts = attempts
        if [1 for attempt in attempts if attempt.hidden is not None]:
            # An error of the call may have the values of any job.
            hidden = Hidden.merge([attempt.hidden for attempt in attempts])
            for attempt in attempts:
                attempt.hidden = hidden
        return items

    def _take_end(self, call: Call, end: End) -> None:
        """End the attempts of a call that ended, or call the handler again with each half."""
        call.task = None  # it knows the call, too
        jobs = len(call.called)
        halves = call.find_halves(end)
        if halves:
            _tell_split(call, jobs, end.error if isinstance(end, Errored) else end)
        for attempt, its in call.sort_ends(end):
            self._tell(attempt, its)
        call.pack.calls.extendleft(reversed(halves))
        call.pack.current = None
        self._go_on(call.pack)


def _find_own_end(attempt: Attempt, end: End) -> End:
    """Return how one job of a call ended: a stop that the handler obeyed counts, not its answer."""
    stop = attempt.stop_outcome
    if isinstance(stop, Cancel):
        return stop
    if isinstance(end, HandedBack) and attempt.began_at is not None:
        return stop or Interrupted(end.why)
    if isinstance(end, Interrupted) and attempt.began_at is None:
        return HandedBack(end.why)
    return end


def _tell_split(call: Call, jobs: int, raised: object) -> None:
    assert isinstance(raised, BaseException)
    level = logging.DEBUG if call.is_part else logging.WARNING
    logger.log(
        level,
        "job type %s: a call of %d jobs failed with %s: %s. Each half is called again, to find the "
        "job at fault",
        call.job_type.name, jobs, error_type(raised), message(raised),
    )  # fmt: skip
