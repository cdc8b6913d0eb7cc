"""One call of a handler that takes many jobs: which jobs it gets, and how each job ends. After an
error that may be one job's fault each half is called again, in the same slot, until that job is
alone."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.declare.call_context import CallContext
from rota.declare.context import Context
from rota.declare.result import count_answers, read_answer
from rota.model.classify import may_be_of_one_job
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
            attempt
            for attempt in self.called or self.attempts
            if attempt.outcome is None and attempt.stop_outcome is None and not attempt.is_lost
        ]

    def find_open(self) -> list[Attempt]:
        return [attempt for attempt in self.called or self.attempts if attempt.outcome is None]

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
        step = Attempt.take_another_step if self.is_part else Attempt.take_first_step
        called, items = [], []
        for attempt, item in zip(self.attempts, self.items, strict=True):
            end = step(attempt, now)
            if end is None:
                called.append(attempt)
                items.append(item)
            else:
                self.obstacles.append((attempt, end))
        self.pack.uncalled.difference_update(self.attempts)
        self.items[:] = items  # the same list: the handler has it
        self.called = called  # all at once: the loop reads it meanwhile
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
                read_answer(attempt.job, answer, attempt.stop_outcome)
                for attempt, answer in zip(self.called, result, strict=True)
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
        called = self.called
        if self.began_at is None:
            hindered = dict(self.obstacles)
            called = [attempt for attempt in self.attempts if attempt not in hindered]
        is_plain = end is NOTHING and not self.obstacles
        if is_plain and not [1 for attempt in called if attempt.stop_outcome]:
            return [(attempt, end) for attempt in called]
        ends = end.ends if isinstance(end, CallEnd) else [end] * len(called)
        pairs = zip(called, ends, strict=True)
        return [(attempt, _find_own_end(attempt, its)) for attempt, its in pairs] + self.obstacles

    def find_halves(self, end: End) -> list[Call]:
        """Return a call for each half of the jobs that may be at fault for what the handler raised,
        and take these jobs from this call. No call: each job has its own outcome."""
        if len(self.called) < 2 or not self._may_be_of_one_job(end):
            return []
        # Not a job with a single attempt: it may begin once only.
        again = [attempt for attempt in self.find_live() if attempt.max_attempts > 1]
        half = (len(again) + 1) // 2
        gone = set(again)
        self.called = [attempt for attempt in self.called if attempt not in gone]
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
