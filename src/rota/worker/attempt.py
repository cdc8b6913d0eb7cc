"""One attempt: what a worker knows of a job that it has claimed, until the outcome is written."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from rota.declare.context import Context
from rota.declare.declaration import Declaration
from rota.declare.result import read_error, read_list, read_return
from rota.errors import PayloadError, SecretKeyMissing
from rota.model.awaited import NO_RESULTS, Results
from rota.model.job import Job
from rota.model.outcome import Cancel, End, Errored, Expired, HandedBack, PayloadMismatch, Snooze
from rota.model.scrub import Hidden
from rota.store.ops import Claimed, Start

T = TypeVar("T")

logger = logging.getLogger("rota")

LEASE_SHARE = 0.75
"""The share of a lease that may have passed when a handler begins: the rest is for two renewals."""
KEYLESS_S = 60.0
"""Seconds until a job comes again of which this worker cannot open a secret."""
MISSED_MAX = 100
"""Most missing keys that the log names: whoever inserts jobs chooses the ids."""
UNSTARTED_S = 10.0
"""Seconds until a job comes again for which no thread or process could be started."""
FORGOTTEN = HandedBack("its error is forgotten")
LOST = HandedBack("its lease was lost")

_opening = threading.Lock()
_missed = set[str]()
"""The ids of the keys that the log has named."""


class State(StrEnum):
    """Where an attempt stands in its worker."""

    BUFFERED = "buffered"
    """It is claimed and waits for a slot. Its lease is not renewed."""
    ADMITTED = "admitted"
    """It has a slot, and may wait there for the starter. From now on its lease is renewed."""
    RUNNING = "running"
    """Its runner has it; `began_at` says whether the handler has taken its first step."""
    STOPPING = "stopping"
    """The worker stops it; `stopped` says how it ends."""
    ENDED = "ended"
    """Its outcome is known and not yet written: maybe the database refuses it for now. After a
    timeout the handler may still run."""
    LOST = "lost"
    """Another claim has the job: the handler is stopped, and nothing is written."""
    ABANDONED = "abandoned"
    """Its handler neither ended nor stopped: it continues without a slot. The outcome counts."""


TRANSITIONS: Mapping[tuple[State, str], State] = {
    (State.BUFFERED, "admit"): State.ADMITTED,
    (State.ADMITTED, "begin"): State.RUNNING,
    (State.BUFFERED, "stop"): State.STOPPING,
    (State.ADMITTED, "stop"): State.STOPPING,
    (State.RUNNING, "stop"): State.STOPPING,
    (State.STOPPING, "stop"): State.STOPPING,
    (State.LOST, "stop"): State.LOST,
    (State.BUFFERED, "end"): State.ENDED,
    (State.ADMITTED, "end"): State.ENDED,
    (State.RUNNING, "end"): State.ENDED,
    (State.STOPPING, "end"): State.ENDED,
    (State.LOST, "end"): State.LOST,
    (State.BUFFERED, "lose"): State.LOST,
    (State.ADMITTED, "lose"): State.LOST,
    (State.RUNNING, "lose"): State.LOST,
    (State.STOPPING, "lose"): State.LOST,
    (State.ENDED, "lose"): State.LOST,
    (State.LOST, "lose"): State.LOST,
    (State.ABANDONED, "lose"): State.LOST,
    (State.ENDED, "abandon"): State.ABANDONED,
    (State.LOST, "abandon"): State.LOST,
}
"""Every move of an attempt. Any other move is a bug of the worker."""


class _Moves(dict[State, State]):
    """Where one verb leads, by the state before."""

    def __init__(self, verb: str) -> None:
        super().__init__({at: to for (at, of), to in TRANSITIONS.items() if of == verb})
        self._verb = verb

    def __missing__(self, state: State) -> State:
        raise AssertionError(f"cannot {self._verb} an attempt that is {state}")


# In Python 3.11, to find a member in its class takes longer than everything else here.
_BUFFERED = State.BUFFERED
_LOST = State.LOST

_ADMIT = _Moves("admit")
_BEGIN = _Moves("begin")
_STOP = _Moves("stop")
_END = _Moves("end")
_LOSE = _Moves("lose")
_ABANDON = _Moves("abandon")


class Runs(Protocol):
    """Calls a handler: an attempt's runner."""

    @property
    def stop_s(self) -> float:
        """How long an attempt may last after its handler was asked to stop."""

    def stop(self, attempt: Any) -> None:
        """Interrupt a handler that was asked to stop, if that is possible."""


class Shares(Protocol):
    current: Any
    """The call that runs now, if any."""
    uncalled: set[Attempt]
    """Attempts that were called with others, failed, and are not called again yet."""


class StopRequest(NamedTuple):
    outcome: End
    """The attempt's outcome if its handler stops because of the request."""
    why: str
    """What the handler is told."""
    deadline: float
    """When the attempt ends even if its handler continues."""


class Attempt(msgspec.Struct, eq=False):
    """One claim of one job. Times are monotonic seconds. `claimed_at` is from before the claim was
    sent, so the lease is never thought longer than it is. The worker's loop writes each field,
    unless its docstring names another writer."""

    # Facts of the claim: nothing writes them again.
    job: Job
    job_type: Declaration
    claimed_at: float
    lease_s: float
    is_suspect: bool = False
    """Whether the last attempt was lost with its worker, which this job may have killed."""
    must_record_start: bool = False
    """Whether its start is recorded before the handler begins."""
    is_capped: bool = False
    """Whether it counts for the concurrency limit of its type or queue."""
    start: Start | None = None
    """What its rate limit or breaker has said of its start."""

    shares_turn: bool = False
    """Whether suspects begin beside it; a lost worker then charges none. Written with the turn."""
    results: Results | None = NO_RESULTS
    """The results of the jobs that it waited for; None: not read yet. Written by the starter."""
    pack: Shares | None = None
    """The attempts that share its slot; None: the slot is its own. Written by the packer."""
    state: State = _BUFFERED
    let_in_at: float | None = None
    """When its turn let it into the buffer; None: the claim did."""
    renewed_after_at: float | None = None
    """When its lease was renewed after the claim. Written by the lease keeper's thread."""
    completes: bool = False
    """Whether its handler may have finished the job itself. Written by the handler's thread."""
    runner: Runs | None = None
    """Who calls the handler. Set once, by `begin`."""
    make_context: Callable[[Attempt], Context] | None = None
    """What makes its context. Set once, by `begin`."""
    context: Context | None = None
    """What its handler sees of it; None: the handler has not asked for it."""
    task: asyncio.Task[None] | None = None
    """Set by the runner: the task of an async handler. None for a thread or a process, and after
    the end: a task also knows its attempt."""
    began_at: float | None = None
    """When the handler took its first step; None before. Written by the caller of the handler: the
    loop, a thread, or the thread that watches a process."""
    stopped: StopRequest | None = None
    outcome: End | None = None
    """Set once, by `end`."""
    ended_at: float | None = None
    """Set once, by `end`."""
    hidden: Hidden | None = None
    """Masks its secret and personal arguments in all texts. Set when they are read."""
    write_unconfirmed: bool = False
    """Whether the outcome may be committed, though no answer came. Written by the finisher."""

    @property
    def name(self) -> str:
        return f"rota job {self.job.id}"

    @property
    def frees_place(self) -> bool:
        """Whether its end leaves a place in a lane or concurrency limit to another job."""
        return self.is_capped or self.job.group_key is not None

    @property
    def starts_in_s(self) -> float:
        """How long after its claim its rate limit lets it begin."""
        return 0.0 if self.start is None else self.start.in_s

    @property
    def begin_by(self) -> float:
        if self.start is None or self.start.late_s is None:
            return inf
        return self.claimed_at + self.start.in_s + self.start.late_s

    @property
    def is_trial(self) -> bool:
        """Whether it is the trial of its breaker."""
        return self.start is not None and self.start.is_trial

    @property
    def keeps_lease(self) -> bool:
        """Whether its lease is renewed: not in the buffer, unless it was stopped there."""
        return self.state is not _BUFFERED

    @property
    def renewed_at(self) -> float:
        return self.claimed_at if self.renewed_after_at is None else self.renewed_after_at

    @property
    def buffered_at(self) -> float:
        """Since when it waits for a free slot, if it does."""
        return self.claimed_at if self.let_in_at is None else self.let_in_at

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    @property
    def is_lost(self) -> bool:
        """Whether another claim has the job. Then nothing of this attempt may be written."""
        return self.state is _LOST

    @property
    def is_called(self) -> bool:
        """Whether its handler has begun and, as far as is known, runs for it: its timeout runs."""
        return self.began_at is not None and (self.pack is None or self not in self.pack.uncalled)

    @property
    def stop_outcome(self) -> End | None:
        """Its outcome if its handler stops on request; None: it was not stopped."""
        return None if self.stopped is None else self.stopped.outcome

    @property
    def stop_deadline(self) -> float:
        """When it ends even if its handler continues."""
        return inf if self.stopped is None else self.stopped.deadline

    @property
    def timeout_s(self) -> float:
        """How long the handler may run: the job's own time, else the type's. With `chunk`, one call
        takes many jobs, so the type's time counts."""
        own_s = self.job.timeout_s
        if own_s is None or self.job_type.chunk is not None:
            return self.job_type.options.timeout_s
        return own_s

    @property
    def max_attempts(self) -> int:
        """The job's own most attempts, else the type's."""
        return self.job.max_attempts or self.job_type.rules.max_attempts

    @property
    def ran_s(self) -> float:
        """How long the handler ran; 0 where it did not begin."""
        if self.began_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.began_at

    def find_time_left(self, now: float) -> float:
        """Return the seconds until it reaches its timeout; 0 or less: it has."""
        ran_s = 0.0 if self.began_at is None else now - self.began_at
        return 0.0 if self.is_over else self.timeout_s - ran_s

    def find_task(self) -> asyncio.Task[None] | None:
        """Return the task of its handler, or of the call that has it; None: there is none."""
        run = self if self.pack is None else self.pack.current
        task: asyncio.Task[None] | None = None if run is None else run.task
        return task

    def is_seen_by(self, entered: object) -> bool:
        """Whether the running code has `entered` this attempt."""
        if entered is None:
            return False
        if self.pack is not None and self.pack.current is entered:
            return True
        return entered is self or entered is self.context

    # What its payload says

    def read_arguments(self) -> tuple[dict[str, Any], frozenset[str]] | End:
        """Return the handler's arguments and the fields that it ignores; or why not to call it."""
        return self._read(self.job_type.call_arguments)

    def read_item(self) -> tuple[Any, frozenset[str]] | End:
        """Return the job's item of the handler's list, and the fields that the handler ignores."""
        return self._read(self.job_type.read_item)

    def _read(self, read: Callable[[Job], T]) -> T | End:
        # In a generator, whose frame knows no caller afterwards: callers hold what this returns,
        # and an error, which knows its frames, would keep itself alive.
        return next(self._read_apart(read))

    def _read_apart(self, read: Callable[[Job], T]) -> Iterator[T | End]:
        job = self.job
        try:
            if self.job_type.codec.hides:
                # Before the upgrade, whose error may have a value, and again with what the upgrade
                # made.
                self.hidden = self.job_type.codec.hide(job.payload)
                job = self.job_type.upgrade(job)
                self.hidden = self.job_type.codec.hide(self.job.payload, job.payload)
            found = read(job)
        except SecretKeyMissing as missing:
            yield _wait_for_key(missing)
        except PayloadError as error:
            yield PayloadMismatch(error)
        except BaseException as error:  # noqa: BLE001 - an upgrade function may raise anything
            yield Errored(error)
        else:
            yield found

    # What the caller of the handler asks, in its thread

    def open_context(self) -> Context:
        """Return what its handler sees of it. From any thread; the first call makes it."""
        with _opening:
            if self.context is None:
                self.context = self._make_context()
                # A stop is written first, and the context read then: one of the two sees the other.
                self.tell_stop()
            return self.context

    def _make_context(self) -> Context:
        assert self.make_context is not None
        return self.make_context(self)

    def read_return(self, result: Any) -> End:
        if self.job_type.chunk is None:
            return read_return(self.job, result)
        return read_list(self.job, result, self.stop_outcome)

    def read_error(self, error: BaseException) -> End:
        """Return the outcome of a handler that raised. A snooze for a missing key waits for it."""
        if isinstance(error, Snooze) and isinstance(error.__cause__, SecretKeyMissing):
            return _wait_for_key(error.__cause__)
        return read_error(error, self.stop_outcome)

    # The verbs of `TRANSITIONS`: the usual way

    @staticmethod
    def admit(attempts: Iterable[Attempt]) -> None:
        """Give each attempt a slot. Called by the executor."""
        for attempt in attempts:
            attempt.state = _ADMIT[attempt.state]

    @staticmethod
    def begin(
        attempts: Iterable[Attempt],
        runner: Runs | None,
        make_context: Callable[[Attempt], Context],
    ) -> None:
        """Hand attempts to their runner, which may call the handlers. Called by the executor."""
        for attempt in attempts:
            attempt.state = _BEGIN[attempt.state]
            attempt.runner = runner
            attempt.make_context = make_context

    def stop(self, outcome: End, why: str, deadline: float = inf) -> None:
        """Stop the attempt, so that it ends as `outcome` when its handler stops, or at the
        deadline. The first reason stays, and so does the first deadline with its outcome."""
        self.state = _STOP[self.state]
        first = self.stopped
        if first is None:
            self.stopped = StopRequest(outcome, why, deadline)
        elif first.deadline == inf:
            self.stopped = StopRequest(outcome, first.why, deadline)

    def tell_stop(self) -> None:
        """Tell the handler to stop, if it has asked for its context."""
        if self.context is not None and self.stopped is not None:
            self.context._request_stop(self.stopped.why)

    def end(self, outcome: End, now: float) -> None:
        """Set the outcome. Called by the executor."""
        self.state = _END[self.state]
        self.outcome = outcome
        self.ended_at = now

    def forget_error(self) -> None:
        """Let go of the handler's error, whose frames know tasks and contexts that know the
        attempt. Called by the finisher, once the outcome is written or dropped."""
        if isinstance(self.outcome, Errored | PayloadMismatch | BaseException):
            self.outcome = FORGOTTEN

    # The verbs of `TRANSITIONS`: when something goes wrong

    def lose(self) -> None:
        """Note that another claim has the job. Called by the executor and the finisher."""
        self.state = _LOSE[self.state]

    def abandon(self) -> None:
        """Note that its handler continues without a slot. Called by the executor."""
        self.state = _ABANDON[self.state]

    # The handler's first step, from the thread that calls the handler

    def take_another_step(self, now: float) -> End | None:
        """Note that the handler is called again, after a call with others that failed; or return
        why it may not. The handler gets a new context."""
        self.began_at = now
        if self.context is not None:
            earlier, self.context = self.context, self._make_context()
            self.context._continue_after(earlier)
            self.tell_stop()
        return self.stop_outcome

    def take_first_step(self, now: float) -> End | None:
        """Note that the handler begins; or return why it may not. It writes first and checks then:
        so either a stop from the loop sees that the handler began, or this check sees the stop."""
        self.began_at = now
        if (
            self.stopped is None
            and now - self.claimed_at <= self.lease_s * LEASE_SHARE
            and (self.start is None or now <= self.begin_by)
            and self.job.expires_at is None
        ):
            return None  # nearly always
        end = self.find_obstacle(now)
        if end is None and now > self.begin_by:
            end = HandedBack("it would have begun too late after its turn", 0.0)
        if end is not None:
            self.began_at = None
        return end

    def find_obstacle(self, now: float) -> End | None:
        """Return why the handler may not take its first step; None: it may. The process may have
        been frozen or busy since the attempt was let begin."""
        stop = self.stop_outcome
        if stop is not None:
            if isinstance(stop, Cancel):
                return stop
            return HandedBack("it was stopped before it began")
        if now - self.renewed_at > self.lease_s * LEASE_SHARE:
            return HandedBack("its lease ran out before it began")
        if now >= self.expires_at:
            return Expired(now - self.expires_at)
        return None

    def hand_back_unstarted(self, what: str, error: Exception, now: float) -> End:
        """Return the outcome when the machine can start no thread or process for the job."""
        job = self.job
        logger.error(
            "job %s %s: no %s can be started for it: %s", job.id, job.job_type, what, error
        )
        self.began_at = None
        why = f"no {what} can be started for it: {error}"
        return self.find_obstacle(now) or HandedBack(why, UNSTARTED_S)

    @property
    def expires_at(self) -> float:
        """When its job expires, by the database's clock at the claim, then ours; inf: never."""
        if self.job.expires_at is None:
            return inf
        assert self.job.started_at is not None
        return self.claimed_at + (self.job.expires_at - self.job.started_at).total_seconds()


def _wait_for_key(missing: SecretKeyMissing) -> HandedBack:
    if missing.key_id not in _missed and len(_missed) < MISSED_MAX:
        _missed.add(missing.key_id)
        logger.warning("%s; jobs wait for a worker that can open it", missing)
    return HandedBack(str(missing), KEYLESS_S, f"key {missing.key_id}")


def make_attempts(
    claimed: Claimed,
    types: Mapping[str, Declaration],
    leases_s: Mapping[str, float],
    claimed_at: float,
) -> list[Attempt]:
    """Return an attempt for each job of a claim that was sent at `claimed_at`."""
    attempts = [
        Attempt(job, types[job.job_type], claimed_at, leases_s[job.job_type])
        for job in claimed.jobs
    ]
    if claimed.suspects or claimed.unrecorded or claimed.capped or claimed.starts:
        for attempt in attempts:
            job = attempt.job.id
            attempt.is_suspect = job in claimed.suspects
            attempt.must_record_start = job in claimed.unrecorded
            attempt.is_capped = job in claimed.capped
            attempt.start = claimed.starts.get(job)
    return attempts
