"""How an attempt can end: what its handler says, or what happened to it. `settle` decides on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from rota.errors import AttemptCancelled, UsageError, explains
from rota.model.awaited import OnFailure, check_on_failure, read_ids
from rota.model.units import Duration, is_duration, seconds


class Failure(msgspec.Struct, frozen=True):
    """What is stored of an error: short, safe for an admin screen, limited in size."""

    error_type: str
    """Class name of the error."""
    message: str
    """Text of the error, without secrets that Rota recognizes."""
    verdict: str
    """`transient` or `fatal`: whether another attempt can help."""
    verdict_rule: str
    """The rule that gave the verdict."""
    response_code: int | None = None
    """HTTP or SMTP status code; None: the error has none."""
    stack: str | None = None
    """Traceback of the error; None: there is none."""
    retry_after_s: float | None = None
    """How long the server that answered asks to wait."""
    is_endpoint: bool = False
    """Whether a circuit breaker counts it."""


_CALLED_HERE = {
    **dict.fromkeys(("countdown", "delay", "defer", "eta", "when"), 'after="1m"'),
    "exc": "raise rota.Retry() from error",
    "max_retries": "max_attempts=, an option of the job type",
}
"""What other libraries call the arguments of Retry and Snooze."""


class Outcome(Exception):
    """What a handler says about its job: raise it or return it."""

    reason: str
    """What the handler gave as the reason; empty: nothing."""
    _of_job: int | None = None
    """The job whose effect or step gave it; None: the handler did."""
    _judged_cause: Failure | None = None
    """What a handler's process read from the error that this came from: elsewhere `__cause__`."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:  # an exception is unpickled from what str() shows
        return _restore, (type(self), self.args, vars(self))


def _restore(kind: type[Outcome], args: tuple[str, ...], fields: dict[str, Any]) -> Outcome:
    outcome = kind.__new__(kind, *args)
    vars(outcome).update(fields)
    return outcome


class Retry(Outcome):
    """Retry the job after the given time (at least 1 s), by default after the retry policy's delay.

    The attempt counts as a failure; after max_attempts the job is dead. `raise Retry(…) from error`
    keeps the error's class, status code and stack, and waits as long as its server asks.

    Args:
        reason: recorded with the attempt. Defaults to none.
        after: 0 … 100 years; less than 1 s means 1 s. Defaults to the delay that the error's server
            asks for, otherwise to the policy's delay.
    """

    after_s: float | None
    """Seconds until the next attempt; None: the delay of the retry policy."""

    @explains(_CALLED_HERE)
    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        given: object = reason
        if isinstance(given, int | float | timedelta) or is_duration(given):
            wait = f"{given}s" if isinstance(given, int | float) else given
            raise UsageError(f"Retry takes a reason first; to wait: rota.Retry(after={wait!r})")
        super().__init__(reason)
        self.after_s = None if after is None else seconds(after, name="after")


class Snooze(Outcome):
    """Run the job again after the given time (at least 1 s). The attempt does not count.

    Args:
        after: 0 … 100 years; less than 1 s means 1 s.
        reason: recorded with the job. Defaults to none.
    """

    after_s: float
    """Seconds until the job runs again; less than 1 means 1."""

    @explains(_CALLED_HERE)
    def __init__(self, after: Duration, reason: str = "") -> None:
        super().__init__(reason)
        self.after_s = seconds(after, name="after")


class RateLimited(Outcome):
    """The provider wants no more for now: run the job again after the given time (at least 1 s).

    The attempt does not count. If its type has a rate limit, no job of that limit and key starts
    before then, on any worker.

    Args:
        reason: recorded with the job. Defaults to none.
        retry_after: 0 … 100 years; less than 1 s means 1 s.
    """

    retry_after_s: float
    """Seconds until the job may run again, at least 1."""

    def __init__(self, reason: str = "", *, retry_after: Duration) -> None:
        super().__init__(reason)
        self.retry_after_s = max(1.0, seconds(retry_after, name="retry_after"))


class WaitFor(Outcome):
    """Wait until other jobs have ended; then run this job again from its top. `ctx.results` has
    their results. Meanwhile the job holds no slot, and the attempt does not count.

    Args:
        jobs: what `enqueue` returned, a Job or an id, or several of them. A job waits for at most
            1,000 in all.
        on_failure: "continue" goes on, whatever their results; "wait" waits while a job is dead,
            until a person has retried or archived it.

    Raises:
        UsageError: jobs names none, too many, or what is no job.
    """

    jobs: tuple[int, ...]
    """Ids of the jobs to wait for, each once."""
    on_failure: OnFailure
    """Whether a dead job counts as finished (`continue`) or is waited for (`wait`)."""

    def __init__(self, jobs: Any, *, on_failure: OnFailure = "continue") -> None:
        super().__init__()
        self.jobs = read_ids(jobs)
        self.on_failure = check_on_failure(on_failure)


class Dead(Outcome):
    """End the job as dead: no further attempt until you retry it. It keeps its idempotency key.
    `raise Dead(…) from error` keeps the error's class, status code and stack.

    Args:
        reason: recorded as its last error. Defaults to none.
    """


class Cancel(Outcome):
    """Cancel it: the job is finished, and its idempotency key is free again.

    Args:
        reason: recorded as why it was cancelled. Defaults to none.
    """


KINDS = (Retry, Snooze, RateLimited, WaitFor, Dead, Cancel)


def make_plain(outcome: Outcome) -> Outcome:
    """Return an outcome in a class of Rota's, without its cause: an application's class may not
    pickle. Raises TypeError if it is of none of KINDS."""
    for kind in KINDS:
        if isinstance(outcome, kind):
            reason = str(outcome.reason)
            fields = {name: getattr(outcome, name) for name in kind.__annotations__}
            return _restore(kind, (reason,), {"reason": reason, **fields})
    raise TypeError(f"not an outcome: {type(outcome).__name__}")


class Succeeded(msgspec.Struct, frozen=True):
    """The handler returned."""

    result_json: str | None


NOTHING = Succeeded(None)
"""The handler returned nothing: the outcome of nearly all attempts, which share this object."""


class Errored(msgspec.Struct, frozen=True):
    """The handler raised, or exceeded its timeout."""

    error: BaseException


def find_outcome(error: BaseException) -> Outcome | None:
    """Return the outcome that an error is; in a group of outcomes and stops, as of a task group,
    the first outcome. None: it is no outcome, or an error of another kind is in the group."""
    said = [member for member in ungroup(error) if not isinstance(member, _STOPS)]
    outcomes = [member for member in said if isinstance(member, Outcome)]
    return outcomes[0] if outcomes and len(outcomes) == len(said) else None


def is_stop(error: BaseException) -> bool:
    """Whether an error only says that the handler stopped on request; a task group wraps it."""
    return all(isinstance(member, _STOPS) for member in ungroup(error))


def ungroup(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the errors of a group, however deep; any other error stands alone."""
    left = [error]  # a loop, not recursion: groups can nest deeper than the stack
    while left:
        member = left.pop()
        if isinstance(member, BaseExceptionGroup):
            left += reversed(member.exceptions)
        else:
            yield member


_STOPS = (asyncio.CancelledError, AttemptCancelled)


def refuse_outcome(error: BaseException) -> Errored:
    """Return the end of an attempt whose outcome raised this error while it was read."""
    why = f"{type(error).__name__} while its outcome was read"
    return Errored(UsageError(f"the handler's outcome cannot be read: {why}"))


class Failed(msgspec.Struct, frozen=True):
    """The handler raised in its own process, which judged the error: not every error pickles."""

    failure: Failure


class PayloadMismatch(msgspec.Struct, frozen=True):
    """The payload does not fit the handler of this release; it never started."""

    error: BaseException


class Expired(msgspec.Struct, frozen=True):
    """The job was claimed but not started before expires_at."""

    late_s: float
    """Seconds from expires_at to the moment at which it would have started."""


class HandedBack(msgspec.Struct, frozen=True):
    """The job goes back uncharged, and keeps its lane's place: its worker does not let it begin."""

    why: str
    delay_s: float | None = None
    """Seconds until it may be claimed again; None: its run_at stays."""
    waits_for: str | None = None
    """What it waits for, as in `job.waits_for`: `key ID`, say."""


class Interrupted(msgspec.Struct, frozen=True):
    """The worker is shutting down and stopped the handler, or leaves it behind."""

    why: str


class CallEnd(msgspec.Struct, frozen=True):
    """What a handler answered for each job of one call: the end of the call, not of a job."""

    ends: list[End]


End = (
    Succeeded
    | Errored
    | Failed
    | PayloadMismatch
    | Expired
    | HandedBack
    | Interrupted
    | CallEnd
    | Outcome
)
"""Every way an attempt can end."""
