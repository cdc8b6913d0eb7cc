"""Circuit breakers: what counts, how long, and what an attempt's end says of its endpoint. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rota.model.failure import one_line
from rota.model.outcome import Dead, End, Errored, Failed, Failure, Retry, Succeeded
from rota.model.settle import RetryRules, judge, judge_cause

FAILURES_MAX = 1_000
"""The times of the failures that count are in the breaker's row."""
REASON_MAX = 500


class BreakerRules(msgspec.Struct, frozen=True):
    """When a breaker opens, and for how long. Durations are seconds."""

    name: str
    failures: int
    within_s: float
    open_for_s: float
    max_open_s: float

    def in_words(self) -> str:
        return (
            f"failures={self.failures}, within={self.within_s:g} s, "
            f"open_for={self.open_for_s:g} s, max_open={self.max_open_s:g} s"
        )


class EndpointHealth(StrEnum):
    SERVES = "serves"
    """The handler succeeded."""
    FAILS = "fails"
    """The endpoint failed."""
    UNKNOWN = "unknown"
    """Neither: the job was at fault, or did not get so far."""


def judge_endpoint(end: End, rules: RetryRules) -> tuple[EndpointHealth, str | None]:
    """Return what the end of an attempt says of the endpoint, and for a failure its text, or the
    `endpoint_reason` of its error."""
    failure: Failure | None = None
    reason: str | None = None
    match end:
        case Succeeded():
            return EndpointHealth.SERVES, None
        case Errored(error):
            failure = judge(error, rules)
            reason = getattr(error, "endpoint_reason", None)
        case Failed(failure):
            pass
        case Retry() | Dead():
            failure = judge_cause(end, rules)
    if failure is None or not failure.is_endpoint:
        return EndpointHealth.UNKNOWN, None
    why = one_line(f"{failure.error_type}: {reason or failure.message}", REASON_MAX)
    return EndpointHealth.FAILS, why
