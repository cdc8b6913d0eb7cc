"""How an attempt is settled: from the job's facts, how its attempt ended, and its type's rules.
Pure: no I/O, no clock. The store writes what is decided here."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from rota.errors import UsageError
from rota.model.awaited import Awaits, JobResult, find_fault
from rota.model.classify import Verdict, classify
from rota.model.failure import error_type, message, stack
from rota.model.job import Job, Status
from rota.model.outcome import (
    Cancel,
    Dead,
    End,
    Errored,
    Expired,
    Failed,
    Failure,
    HandedBack,
    Interrupted,
    Outcome,
    PayloadMismatch,
    RateLimited,
    Retry,
    Snooze,
    Succeeded,
    WaitFor,
)
from rota.model.retry import Errors, RetryPolicy


class Transition(msgspec.Struct, frozen=True):
    verb: str
    status: Status
    charged: bool = True
    loss: bool = False
    """Whether the worker leaves a job that had begun: it counts as a loss of the job."""
    delay_s: float | None = None
    """Seconds from the database's now until run_at; None keeps run_at."""
    failure: Failure | None = None
    result_json: str | None = None
    reason: str | None = None
    waits_for: str | None = None
    """Why the job was handed back, or what it waits for, as in `job.waits_for`."""
    delays_limit: bool = False
    """Whether no job of its limit may start before `delay_s` is over."""
    awaits: Awaits | None = None
    """The jobs that it waits for; None: no jobs."""
    payload_mismatch: bool = False
    """The server decides between `queued` and `dead`: it knows which other releases are alive."""


class RetryRules(msgspec.Struct, frozen=True):
    max_attempts: int
    retry: RetryPolicy
    retry_on: Errors = ()
    fatal_on: Errors = ()
    dead_if_lost: bool = False
    """Whether a job that began and was lost is dead, whatever attempts it has left."""
    drop_if_expired: bool = False
    """Whether a job that was not started in time is cancelled; otherwise it is dead."""

    @property
    def must_record_start(self) -> bool:
        """Whether starts of this type are recorded before they begin: its jobs may begin only once.
        The SQL function `must_record_start` says the same, and adds jobs that were lost before."""
        return self.dead_if_lost or self.max_attempts == 1


def settle(
    job: Job,
    end: End,
    rules: RetryRules,
    *,
    must_record_start: bool = False,
    results: Collection[JobResult] = (),
    limit: str | None = None,
) -> Transition:
    """Decide the outcome of a running job. `results`: of the jobs that it waited for; `limit`: the
    rate limit that let it start, as in `job.waits_for`. The same facts always give the same
    answer: the jitter is a hash of (id, claims)."""
    match end:
        case Succeeded(result_json):
            return Transition("succeed", Status.SUCCEEDED, result_json=result_json)
        case Errored(error):
            return _settle_failure(job, judge(error, rules), rules)
        case Failed(failure):
            return _settle_failure(job, failure, rules)
        case Outcome():
            return _settle_outcome(job, end, rules, results, limit)
        case HandedBack(why, delay_s, waits_for):
            if not delay_s:  # it comes again at once, and has waited for its limit
                waits_for = waits_for or limit
            return Transition(
                "hand_back",
                Status.QUEUED,
                charged=False,
                delay_s=delay_s,
                reason=why,
                waits_for=waits_for,
            )
        case Interrupted(why):
            return _settle_interrupted(job, why, rules, must_record_start=must_record_start)
        case Expired(late_s):
            return _settle_expired(job, late_s, rules)
        case PayloadMismatch(error):
            failure = Failure(error_type(error), message(error), Verdict.FATAL, "payload mismatch")
            return Transition(
                "hand_back", Status.QUEUED, charged=False, failure=failure, payload_mismatch=True
            )
    raise TypeError(f"not an end of an attempt: {end!r}")


def _settle_outcome(
    job: Job,
    outcome: Outcome,
    rules: RetryRules,
    results: Collection[JobResult],
    limit: str | None,
) -> Transition:
    """Settle a job by what its handler itself says."""
    said = _reason_of(outcome)
    match outcome:
        case Cancel():
            return Transition("cancel", Status.CANCELLED, reason=said)
        case Snooze(after_s=after_s):
            delay_s = max(1.0, after_s)
            return Transition("snooze", Status.QUEUED, charged=False, delay_s=delay_s, reason=said)
        case WaitFor():
            return _settle_wait(job, outcome, rules, results)
        case RateLimited(retry_after_s=delay_s):
            return Transition(
                "hand_back",
                Status.QUEUED,
                charged=False,
                delay_s=delay_s,
                reason=said or "the provider wants no more for now",
                waits_for=limit,
                delays_limit=limit is not None,
            )
        case Dead():
            failure = _failure_of(outcome, said or "the handler gave up", Verdict.FATAL, rules)
            return Transition("give_up", Status.DEAD, failure=failure)
        case Retry(after_s=after_s):
            text = said or "the handler asked for a retry"
            failure = _failure_of(outcome, text, Verdict.TRANSIENT, rules)
            return _retry_or_give_up(job, failure, rules, after_s)
    raise TypeError(f"not an end of an attempt: {outcome!r}")


def _settle_wait(
    job: Job, wait: WaitFor, rules: RetryRules, results: Collection[JobResult]
) -> Transition:
    fault = find_fault(job, wait.jobs, wait.on_failure, results)
    if fault is not None:
        failure = replace(judge(UsageError(fault), rules), verdict=Verdict.FATAL)
        return _settle_failure(job, replace(failure, verdict_rule="raised WaitFor"), rules)
    return Transition(
        "wait",
        Status.WAITING,
        charged=False,
        # A sweep looks at the last job first: jobs mostly end in the order of their enqueues.
        waits_for=f"job {wait.jobs[-1]}",
        awaits=Awaits(wait.jobs, on_failure=wait.on_failure),
    )


def _failure_of(outcome: Dead | Retry, text: str, verdict: Verdict, rules: RetryRules) -> Failure:
    """Return what to store of an outcome. `raise Retry(…) from error` keeps what the error was."""
    name = "Dead" if isinstance(outcome, Dead) else "Retry"
    cause = judge_cause(outcome, rules)
    if cause is None:
        return Failure(name, text, verdict, f"raised {name}")
    said = f"{text}: {cause.message}" if outcome.reason else cause.message
    return replace(cause, message=said, verdict=verdict, verdict_rule=f"raised {name}")


def _settle_expired(job: Job, late_s: float, rules: RetryRules) -> Transition:
    text = f"not started before expires_at ({job.expires_at}): {_explain_delay(job, late_s)}"
    if rules.drop_if_expired:
        return Transition("drop", Status.CANCELLED, charged=False, reason=f"expired: {text}")
    failure = Failure("Expired", text, Verdict.FATAL, "expired")
    return Transition("give_up", Status.DEAD, charged=False, failure=failure)


def _explain_delay(job: Job, late_s: float) -> str:
    """Say what kept a claimed job from starting in time, as far as its worker knows. For an
    unclaimed job the SQL function `expiry_reason` says it."""
    if job.expires_at is None or job.started_at is None or job.started_at < job.expires_at:
        return (
            "it was claimed in time, but its worker's slots were busy "
            f"until {late_s:.1f} s too late"
        )
    if job.run_at >= job.expires_at:
        return f"it was not due before {job.run_at}"
    return (
        f"it was due at {job.run_at} and would have started {late_s:.1f} s too late: "
        "the workers were busy, or none was alive"
    )


def _reason_of(outcome: Outcome) -> str | None:
    """Return the handler's reason, as storable and safe as an error's message; None: none."""
    return message(outcome) if outcome.reason else None


def judge(error: BaseException, rules: RetryRules) -> Failure:
    seen = classify(error, retry_on=rules.retry_on, fatal_on=rules.fatal_on)
    return Failure(
        error_type(error), message(error),
        seen.verdict, seen.rule, seen.response_code, stack(error),
        seen.retry_after_s, seen.is_endpoint,
    )  # fmt: skip


def judge_cause(outcome: Outcome, rules: RetryRules) -> Failure | None:
    """Return what to store of the error from which an outcome was raised; None: there is none."""
    if outcome._judged_cause is not None:
        return outcome._judged_cause
    error = outcome.__cause__
    return None if error is None or isinstance(error, Outcome) else judge(error, rules)


def _settle_failure(job: Job, failure: Failure, rules: RetryRules) -> Transition:
    if failure.verdict == Verdict.FATAL:
        return Transition("give_up", Status.DEAD, failure=failure)
    return _retry_or_give_up(job, failure, rules, None)


def _settle_interrupted(
    job: Job, why: str, rules: RetryRules, *, must_record_start: bool
) -> Transition:
    """Settle an interrupted attempt as the reaper settles a lost job: the first time the job comes
    back uncharged, unless its start was recorded; then the loss counts."""
    if not must_record_start:
        return Transition("interrupt", Status.QUEUED, charged=False, loss=True)
    failure = Failure("Interrupted", why, Verdict.TRANSIENT, "interrupted")
    if rules.dead_if_lost:
        return Transition("give_up", Status.DEAD, loss=True, failure=failure)
    return msgspec.structs.replace(_retry_or_give_up(job, failure, rules, None), loss=True)


def _retry_or_give_up(
    job: Job, failure: Failure, rules: RetryRules, after_s: float | None
) -> Transition:
    if job.attempts >= (job.max_attempts or rules.max_attempts):
        return Transition("give_up", Status.DEAD, failure=failure)
    if after_s is not None:
        delay_s = max(1.0, after_s)
    elif failure.retry_after_s is not None:
        delay_s = rules.retry.delay_asked_for_s(
            failure.retry_after_s, job.attempts, job.id, job.claims
        )
    else:
        delay_s = rules.retry.delay_with_jitter_s(job.attempts, job.id, job.claims)
    return Transition("fail", Status.FAILED, delay_s=delay_s, failure=failure)
