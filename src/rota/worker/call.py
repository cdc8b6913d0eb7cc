"""A call of a handler that takes many jobs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rota.declare.call_context import CallContext
from rota.model.classify import may_be_of_one_job
from rota.model.outcome import (
    NOTHING,
    CallEnd,
    Cancel,
    Dead,
    Errored,
    HandedBack,
    Interrupted,
    Outcome,
)
from rota.worker.attempt import Attempt, State
from rota.worker.runners import count_answers, read_answer

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.model.outcome import End


class Call(Attempt):
    """Several attempts of one type whose handler is called once.

    It goes the way of an attempt, in place of them: it has the slot, the runner and the timeout.
    Each of its attempts keeps its own claim, lease and outcome.
    """

    __slots__ = (
        "_jobs_max",
        "attempts",
        "called",
        "is_part",
        "items",
        "longest_s",
        "obstacles",
        "ready_at",
        "waiting",
    )

    def __init__(self, attempts: list[Attempt], *, is_part: bool = False) -> None:
        first = attempts[0]
        super().__init__(first.job, first.job_type, first.claimed_at, first.lease_s)
        assert first.job_type.chunk is not None
        self._jobs_max = first.job_type.chunk.jobs_max
        self.attempts = attempts
        for attempt in attempts:
            attempt.call = self
        self.is_part = is_part
        """Whether it is a half of a call that failed."""
        self.ready_at: float | None = None
        """When it began to wait for a free slot; None: when its first job was claimed."""
        self.waiting: set[Attempt] = set()
        """Those that a gate holds back in the slot; the call waits for them."""
        self.items: list[Any] = []
        """What the handler gets, one for each attempt. Set once, before `begin`."""
        self.longest_s = 0.0
        self.called: list[Attempt] = []
        """Those whose items the handler got. Written by the caller of the handler."""
        self.obstacles: list[tuple[Attempt, End]] = []
        """Those that it did not get, and why. Written by the caller of the handler."""

    @property
    def takes_more(self) -> bool:
        """Whether another job may join: it waits, and has fewer than its type allows."""
        return len(self.attempts) < self._jobs_max and self.state is State.BUFFERED

    @property
    def timeout_s(self) -> float:
        """How long the handler may run: the longest time of one of its jobs."""
        return self.longest_s

    @property
    def buffered_at(self) -> float:
        """Since when it waits for a free slot."""
        return self.attempts[0].buffered_at if self.ready_at is None else self.ready_at

    def join(self, attempts: list[Attempt]) -> int:
        """Add the first of these attempts, as many as there is room for; return how many."""
        fresh = attempts[: self._jobs_max - len(self.attempts)]
        self.attempts += fresh
        for attempt in fresh:
            attempt.call = self
        return len(fresh)

    def keep(self, attempts: set[Attempt]) -> None:
        """Keep those of its attempts that are among these, and those that wait in the slot."""
        self.attempts = [one for one in self.attempts if one in attempts or one in self.waiting]

    def find_live(self) -> list[Attempt]:
        """Return those whose outcome still depends on the handler."""
        return [
            one
            for one in self.called or self.attempts
            if one.outcome is None and one.stop_outcome is None and not one.is_lost
        ]

    def make_context(
        self, worker: str, state: Any, make_item: Callable[[Attempt], Context]
    ) -> CallContext:
        """Return the context of the call; that of each job is made when the handler asks for it."""

        def make_items() -> list[Context]:
            return [_give_context(attempt, make_item(attempt)) for attempt in self.called]

        return CallContext(self.job, worker, state, make_items)

    # The verbs, of all of its attempts

    def admit(self) -> None:
        """Give it a slot; from here on the leases of its attempts are renewed."""
        super().admit()
        for attempt in self.attempts:
            if attempt.state is State.BUFFERED:
                attempt.admit()

    def begin(self) -> None:
        """Hand it to its runner."""
        super().begin()
        own_s = {attempt.job.timeout_s for attempt in self.attempts}
        type_s = self.job_type.options.timeout_s
        self.longest_s = max(type_s if one is None else one for one in own_s)
        for attempt in self.attempts:
            if attempt.state is State.ADMITTED:
                attempt.begin()

    def take_first_step(self, now: float) -> End | None:
        """Note that the handler begins, with those of its jobs that still may; or return why it may
        not."""
        self.began_at = now
        if self.stop_outcome is None:
            self._sort_out(now)
        if not self.called:
            self.began_at = None
            return HandedBack("it was stopped before it began")
        return None

    def _sort_out(self, now: float) -> None:
        called, items = [], []
        for attempt, item in zip(self.attempts, self.items, strict=True):
            # One that was called before, with others, has begun.
            end = attempt.stop_outcome
            if attempt.began_at is None:
                end = attempt.take_first_step(now)
            else:
                attempt.began_at = now
            if end is None:
                called.append(attempt)
                items.append(item)
            else:
                self.obstacles.append((attempt, end))
        self.items[:] = items
        self.called = called

    # How it ended

    def read_return(self, result: Any) -> End:
        """Return the outcome of each of its jobs, after the handler returned; one outcome if it is
        that of all."""
        if result is None:
            return NOTHING
        jobs = [attempt.job for attempt in self.called]
        if isinstance(result, Outcome):
            return CallEnd([result] * len(jobs))
        problem = count_answers(len(jobs), result)
        if problem is not None:
            return CallEnd([problem] * len(jobs))
        stop = self.stop_outcome
        return CallEnd([read_answer(job, one, stop) for job, one in zip(jobs, result, strict=True)])

    def sort_ends(self, end: End) -> list[tuple[Attempt, End]]:
        """Return the outcome of each of its attempts that has none yet."""
        called = self.called or self.attempts
        if end is NOTHING and not self.obstacles and not any(one.stop_outcome for one in called):
            return [(one, end) for one in called if one.outcome is None]
        ends = end.ends if isinstance(end, CallEnd) else [end] * len(called)
        found = {one: find_own_end(one, its) for one, its in zip(called, ends, strict=True)}
        found |= dict(self.obstacles)
        return [(one, its) for one, its in found.items() if one.outcome is None]

    def must_split(self, end: End) -> bool:
        """Whether one of its jobs may be at fault for what the handler raised: then each half is
        called again, until the one at fault is alone. It may be one that was cancelled."""
        if self.stop_outcome is not None or len(self.called) < 2 or not self._find_again():
            return False
        match end:
            case Errored(error):
                rules = self.job_type.rules
                return may_be_of_one_job(error, rules.retry_on, rules.fatal_on)
            case Dead() | Cancel():
                return True
            case Outcome():
                return end._of_job is not None
        return False

    def split(self, now: float) -> list[Call]:
        """Return a call for each half of the jobs that are left; this call has them no more."""
        again = self._find_again()
        half = (len(again) + 1) // 2
        parts = [Call(part, is_part=True) for part in (again[:half], again[half:]) if part]
        for part in parts:
            part.ready_at = now
        self.called = [one for one in self.called if one.call is self]
        self.attempts = [one for one in self.attempts if one.call is self]
        return parts

    def _find_again(self) -> list[Attempt]:
        """Return those that may be called again: not one that has a single attempt."""
        return [attempt for attempt in self.find_live() if attempt.max_attempts > 1]


def find_own_end(attempt: Attempt, end: End) -> End:
    """Return how one job of a call ended. What a handler says of a cancelled job is dropped."""
    if isinstance(attempt.stop_outcome, Cancel):
        return attempt.stop_outcome
    if isinstance(end, HandedBack) and attempt.began_at is not None:
        return Interrupted(end.why)
    if isinstance(end, Interrupted) and attempt.began_at is None:
        return HandedBack(end.why)
    return end


def _give_context(attempt: Attempt, context: Context) -> Context:
    """Give a job of a call its context. The loop writes the stop first and looks for a context
    then; so one of both sees the other."""
    if attempt.context is not None:
        context._continue_after(attempt.context)
    attempt.context = context
    if attempt.is_lost:
        context.request_stop("its lease was lost")
    elif isinstance(attempt.stop_outcome, Cancel):
        context.request_stop(
            f"it was cancelled: {attempt.stop_outcome.reason or 'no reason given'}"
        )
    return context
