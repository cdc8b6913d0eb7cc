"""One attempt: what a worker knows of a job that it has claimed, until the outcome is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import PayloadError
from rota.model.awaited import NO_RESULTS, has_awaited
from rota.model.outcome import (
    NOTHING,
    Cancel,
    End,
    Errored,
    Expired,
    HandedBack,
    PayloadMismatch,
)
from rota.worker.runners import read_list, read_return

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.declare.job_type import JobType
    from rota.model.awaited import Results
    from rota.model.job import Job
    from rota.worker.call import Call
    from rota.worker.gates.ticket import Ticket
    from rota.worker.runners import Runner

T = TypeVar("T")


class State(StrEnum):
    """Where an attempt stands in its worker."""

    BUFFERED = "buffered"
    """Claimed; it waits for a slot. Its lease is not renewed."""
    ADMITTED = "admitted"
    """It has a slot, and waits until its start is recorded. From here on its lease is renewed."""
    RUNNING = "running"
    """Its runner has it; `began_at` says whether the handler has taken its first step."""
    STOPPING = "stopping"
    """The worker stops it. It ends as `stop_outcome` if the handler stops because of that,
    and at `stop_deadline` in any case."""
    ENDED = "ended"
    """Its outcome is known, and waits to be written. Where the attempt timed out, the handler may
    still run in its slot."""
    UNWRITTEN = "unwritten"
    """The database refuses its outcome; the worker tries again after a pause."""
    LOST = "lost"
    """Another claim has the job: its handler is stopped, and nothing of it is written."""
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
    (State.UNWRITTEN, "lose"): State.LOST,
    (State.LOST, "lose"): State.LOST,
    (State.ABANDONED, "lose"): State.LOST,
    (State.ENDED, "put_off"): State.UNWRITTEN,
    (State.UNWRITTEN, "put_off"): State.UNWRITTEN,
    (State.ABANDONED, "put_off"): State.ABANDONED,
    (State.ENDED, "abandon"): State.ABANDONED,
    (State.UNWRITTEN, "abandon"): State.ABANDONED,
    (State.LOST, "abandon"): State.LOST,
}
"""Every way an attempt can move. Any other move is a bug of the worker."""


class _Moves(dict[State, State]):
    """Where one verb leads, by the state before."""

    def __init__(self, verb: str) -> None:
        super().__init__({at: to for (at, of), to in TRANSITIONS.items() if of == verb})
        self._verb = verb

    def __missing__(self, state: State) -> State:
        raise AssertionError(f"cannot {self._verb} an attempt that is {state}")


# Python 3.11 takes longer to find a member in its class than for everything else here.
_BUFFERED = State.BUFFERED
_ENDED = State.ENDED
_LOST = State.LOST

_ADMIT = _Moves("admit")
_BEGIN = _Moves("begin")
_STOP = _Moves("stop")
_END = _Moves("end")
_LOSE = _Moves("lose")
_PUT_OFF = _Moves("put_off")
_ABANDON = _Moves("abandon")


class Attempt:
    """One claim of one job. Times are monotonic seconds.

    `claimed_at` is from before the claim was sent, so the lease is never thought longer than it is.
    Each field says who writes it; if it says nothing, the worker's loop does.
    """

    __slots__ = (
        "began_at",
        "call",
        "claimed_at",
        "completes",
        "context",
        "ended_at",
        "frees_place",
        "is_suspect",
        "job",
        "job_type",
        "keeps_lease",
        "lease_s",
        "must_record_start",
        "outcome",
        "renewed_at",
        "results",
        "runner",
        "state",
        "stop_deadline",
        "stop_outcome",
        "task",
        "ticket",
        "write_unconfirmed",
    )

    def __init__(
        self,
        job: Job,
        job_type: JobType[..., ..., Any],
        claimed_at: float,
        lease_s: float,
        is_suspect: bool = False,
        must_record_start: bool = False,
        is_capped: bool = False,
    ) -> None:
        # Facts of the claim: nothing writes them again.
        self.job = job
        self.job_type = job_type
        self.claimed_at = claimed_at
        self.lease_s = lease_s
        self.is_suspect = is_suspect
        """Whether the last attempt was lost with its worker, which this job may have killed."""
        self.must_record_start = must_record_start
        """Whether its start is recorded before the handler begins."""
        self.frees_place = is_capped or job.group_key is not None
        """Whether its end leaves a place in a lane or a slot of a cap to another job."""

        self.call: Call | None = None
        """The call with others that it is part of; None: its handler takes this job alone."""
        self.results: Results | None = None if has_awaited(job) else NO_RESULTS
        """What came of the jobs that it waited for; None: it is still to be read. Written by the
        gate that reads it."""
        self.ticket: Ticket | None = None
        """What the gates that ask the database know of it; None: its type has no such gate."""
        self.state = _BUFFERED
        self.renewed_at = claimed_at
        """When its lease was last renewed. Written by the lease keeper's thread."""
        self.keeps_lease = False
        """Whether its lease is renewed: from `admit` on, or while the gatekeeper holds it, until
        its outcome is written."""
        self.completes = False
        """Whether its handler may have finished the job in a transaction of its own. Written by the
        handler's thread."""
        self.context: Context | None = None
        """Set once, before `begin`."""
        self.runner: Runner | None = None
        """Who calls the handler. Set once, before `begin`."""
        self.task: asyncio.Task[None] | None = None
        """Set once, by the runner: the task of an async handler, or the one that waits for a
        process; None for a thread's."""
        self.began_at: float | None = None
        """When the handler took its first step; None before. Written by the caller of the handler:
        the loop, a thread, or the thread that watches a process."""
        self.stop_outcome: End | None = None
        """The outcome of the attempt if its handler stops on request."""
        self.stop_deadline: float | None = None
        """When the attempt ends even if its handler continues; None while it need not stop."""
        self.outcome: End | None = None
        """Set once, by `end`."""
        self.ended_at: float | None = None
        """Set once, by `end`."""
        self.write_unconfirmed = False
        """Whether the outcome may have been committed: the answer was lost with the connection.
        Written by the finisher."""

    @property
    def is_over(self) -> bool:
        """Whether its outcome is known; the handler may run on."""
        return self.outcome is not None

    @property
    def is_lost(self) -> bool:
        """Whether another claim has the job: nothing of this one may be written."""
        return self.state is _LOST

    @property
    def is_plain(self) -> bool:
        """Whether its handler just returned, and nothing else is known of it or of its writing."""
        return (
            self.outcome is NOTHING
            and not self.completes
            and self.state is _ENDED
            and not self.is_suspect
            and not self.write_unconfirmed
        )

    @property
    def timeout_s(self) -> float:
        """How long the handler may run: the job's own time, else the type's."""
        own_s = self.job.timeout_s
        return self.job_type.options.timeout_s if own_s is None else own_s

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

    def is_overdue(self, now: float) -> bool:
        """Whether its stop deadline has passed: it ends now even if its handler continues."""
        return not self.is_over and self.stop_deadline is not None and now >= self.stop_deadline

    def read_arguments(self) -> tuple[dict[str, Any], frozenset[str]] | End:
        """Return the handler's arguments, and the fields that it does not take; or why it cannot be
        called."""
        return self._read(self.job_type.call_arguments)

    def read_payload(self) -> tuple[dict[str, Any], frozenset[str]] | End:
        """Return the job's arguments, likewise: they are the handler's, unless that takes a
        list."""
        return self._read(self.job_type.arguments)

    def read_item(self) -> tuple[Any, frozenset[str]] | End:
        """Return the job's item of the handler's list, likewise."""
        return self._read(self.job_type.read_item)

    def _read(self, read: Callable[[Job], T]) -> T | End:
        try:
            return read(self.job)
        except BaseException as error:  # noqa: BLE001 - an upgrade function may raise anything
            return PayloadMismatch(error) if isinstance(error, PayloadError) else Errored(error)

    def read_return(self, result: Any) -> End:
        """Return the outcome of a handler that returned. Called by the caller of the handler."""
        if self.job_type.chunk is None:
            return read_return(self.job, result)
        return read_list(self.job, result, self.stop_outcome)

    # The verbs of `TRANSITIONS`: what an attempt usually goes through

    def admit(self) -> None:
        """Give it a slot. Called by the executor, after the gates."""
        self.state = _ADMIT[self.state]
        self.keeps_lease = True

    def begin(self) -> None:
        """Hand it to its runner: the handler may take its first step from now on.

        Called by the executor.
        """
        self.state = _BEGIN[self.state]

    def stop(self, outcome: End, deadline: float | None = None) -> None:
        """Stop it, so that it ends as `outcome`: when its handler stops, or at a deadline.

        The first deadline stays, with its outcome. Called by the executor: at a cancellation, a
        timeout, a lost lease, and when the worker goes down.
        """
        self.state = _STOP[self.state]
        if self.stop_deadline is None:
            self.stop_outcome = outcome
            self.stop_deadline = deadline

    def end(self, outcome: End, now: float) -> None:
        """Set its outcome. Called by the executor, once a runner or a gate gave it."""
        self.state = _END[self.state]
        self.outcome = outcome
        self.ended_at = now

    # The verbs of `TRANSITIONS`: what goes wrong

    def lose(self) -> None:
        """Note that another claim has the job. Called by the executor and the finisher."""
        self.state = _LOSE[self.state]

    def put_off(self) -> None:
        """Note that the database refuses its outcome. Called by the finisher."""
        self.state = _PUT_OFF[self.state]

    def abandon(self) -> None:
        """Note that its handler continues without a slot. Called by the executor."""
        self.state = _ABANDON[self.state]

    # The handler's first step, from the thread that calls the handler

    def take_first_step(self, now: float) -> End | None:
        """Note that the handler begins; or return why it may not.

        It writes first and checks then. So a stop from the loop either sees that the handler
        began, or is seen here.
        """
        self.began_at = now
        end = self.find_obstacle(now)
        if end is None and self.ticket is not None:
            end = self.ticket.find_obstacle(now)
        if end is not None:
            self.began_at = None
        return end

    def find_obstacle(self, now: float) -> End | None:
        """Return why the handler may not take its first step; None when it may.

        The process may have been frozen or busy since the gates let it begin.
        """
        stop = self.stop_outcome
        if stop is not None:
            if isinstance(stop, Cancel):
                return stop
            return HandedBack("it was stopped before it began")
        if not self.has_lease_to_begin(now):
            return HandedBack("its lease ran out before it began")
        if self.job.expires_at is not None and (late_s := self._late_s(now)) >= 0:
            return Expired(late_s)
        return None

    @property
    def buffered_at(self) -> float:
        """Since when it waits for a free slot, if it does."""
        return self.claimed_at if self.ticket is None else self.ticket.let_in_at

    def has_lease_to_begin(self, now: float) -> bool:
        """Whether at least a quarter of the lease is left."""
        return now - self.renewed_at <= self.lease_s * 0.75

    def _late_s(self, now: float) -> float:
        """How long a job that has an expiry is past it, negative before it.

        By the database's clock at the claim and ours since.
        """
        return now - self.expires_at

    @property
    def expires_at(self) -> float:
        """When a job that has an expiry is past it, in monotonic seconds."""
        assert self.job.expires_at is not None
        assert self.job.started_at is not None
        left_s = (self.job.expires_at - self.job.started_at).total_seconds()
        return self.claimed_at + left_s
