"""When a failed job is retried. Pure: frozen data and functions of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from rota.errors import UsageError
from rota.model.units import Duration, seconds, words

LEAST_S = 1.0
"""The shortest delay, in seconds: a retry always lies in the future."""
MOST_S = 365 * 86400.0
"""The longest delay of any policy, in seconds."""
PLAN_MAX = 100
"""Most delays of the stored plan; its readers repeat the last delay."""
DEFAULT_MAX_ATTEMPTS = 10

Errors = tuple[type[BaseException] | int, ...]
"""Exception classes, and status codes of HTTP and SMTP."""


@dataclass(frozen=True)
class RetryPolicy(ABC):
    """How long to wait after a failed attempt. Delays are 1 s to 365 days, before jitter."""

    jitter: float = field(default=0.25, kw_only=True)
    """How far a delay may differ from the plan, as a share of it: from 0 to below 1."""

    def __post_init__(self) -> None:
        given: object = self.jitter
        try:
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
                raise UsageError(f"jitter must be a number from 0 to below 1, not {given!r}")
            self._check()
        except UsageError as error:
            raise UsageError(f"rota.{type(self).__name__}: {error}") from None

    def _check(self) -> None:
        """Raise UsageError if a duration is out of range."""
        self._raw_delay_s(1)

    @abstractmethod
    def _raw_delay_s(self, attempt: int) -> float:
        """Return the delay after this attempt (1 is the first), before its bounds apply."""

    def delay_s(self, attempt: int) -> float:
        """Return the seconds to wait after this attempt (1 is the first), before jitter."""
        return min(max(LEAST_S, self._raw_delay_s(max(1, attempt))), MOST_S)

    def delay_with_jitter_s(self, attempt: int, job_id: int, claims: int) -> float:
        """Return the seconds to wait, with jitter: a hash of (id, claims), as in every process."""
        stray = self.jitter * (2 * _fraction(job_id, claims) - 1)
        return max(LEAST_S, self.delay_s(attempt) * (1 + stray))

    def delay_asked_for_s(self, asked_s: float, attempt: int, job_id: int, claims: int) -> float:
        """Return the seconds to wait where a server asks for a wait, with jitter that only adds:
        at least the policy's delay after the attempt before, if any. A server that always asks for
        a second would otherwise use up all attempts in an outage."""
        least_s = self.delay_s(attempt - 1) if attempt > 1 else LEAST_S
        return max(asked_s, least_s) * (1 + self.jitter * _fraction(job_id, claims))

    def plan_s(self, max_attempts: int) -> tuple[float, ...]:
        """Return the delays between `max_attempts` attempts, at most a hundred, before jitter."""
        return tuple(self.delay_s(attempt) for attempt in range(1, min(max_attempts, PLAN_MAX + 1)))

    def in_words(self, max_attempts: int) -> str:
        """Return the plan for people: "10 s, 20 s, 40 s, dead after 70 s", all before jitter."""
        return plan_in_words(self.plan_s(PLAN_MAX), max_attempts)


def plan_in_words(plan_s: Sequence[float], max_attempts: int) -> str:
    """Return a plan for people on one short line: of many delays the first and the last. The
    seconds are those between attempts; the last delay repeats."""
    if max_attempts <= 1:
        return "no retry, dead after the first failure"
    shown_s = plan_s[: max_attempts - 1]
    shown = [words(delay_s) for delay_s in shown_s]
    if len(shown) > 4:
        shown = [f"{shown[0]} … {shown[-1]}"]
    beyond = max(0, max_attempts - 1 - len(plan_s))
    total_s = math.fsum(shown_s) + beyond * plan_s[-1]
    return ", ".join([*shown, f"dead after {words(total_s)}"])


@dataclass(frozen=True)
class Fixed(RetryPolicy):
    """The same delay each time."""

    after: Duration
    """The delay after each attempt, 1 s … 365 days."""

    def _raw_delay_s(self, attempt: int) -> float:
        return _delay_s(self.after, "after")


@dataclass(frozen=True)
class Linear(RetryPolicy):
    """attempts × base."""

    base: Duration
    """The delay after the first attempt, 1 s … 365 days."""

    def _raw_delay_s(self, attempt: int) -> float:
        return attempt * _delay_s(self.base, "base")


@dataclass(frozen=True)
class Quadratic(RetryPolicy):
    """attempts² × base."""

    base: Duration = "10s"
    """The delay after the first attempt, 1 s … 365 days."""

    def _raw_delay_s(self, attempt: int) -> float:
        return attempt**2 * _delay_s(self.base, "base")


@dataclass(frozen=True)
class Exponential(RetryPolicy):
    """base, doubled each time, up to the longest delay; `cap=None`: without a limit."""

    base: Duration = "10s"
    """The delay after the first attempt, 1 s … 365 days."""
    cap: Duration | None = "1h"
    """The longest delay, from `base` to 365 days; None: 365 days."""

    def _check(self) -> None:
        base_s = _delay_s(self.base, "base")
        if self.cap is not None and _delay_s(self.cap, "cap") < base_s:
            raise UsageError(
                f"cap= must not be below base=: {self.cap!r} is shorter than {self.base!r}"
            )

    def _raw_delay_s(self, attempt: int) -> float:
        cap_s = MOST_S if self.cap is None else _delay_s(self.cap, "cap")
        return min(cap_s, math.ldexp(_delay_s(self.base, "base"), min(attempt - 1, 64)))


@dataclass(frozen=True, init=False)
class Delays(RetryPolicy):
    """These delays in turn; the last delay repeats."""

    after: tuple[Duration, ...]
    """The delays after attempt 1, 2, …, each 1 s … 365 days."""

    def __init__(self, *after: Duration, jitter: float = 0.25) -> None:
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "jitter", jitter)
        self.__post_init__()

    def _check(self) -> None:
        if not self.after:
            raise UsageError('give at least one delay, as in Delays("1m", "5m", "30m", "2h")')
        for step in self.after:
            _delay_s(step, "after")

    def _raw_delay_s(self, attempt: int) -> float:
        return _delay_s(self.after[min(attempt, len(self.after)) - 1], "after")


def _delay_s(value: Duration, name: str) -> float:
    return seconds(value, name=name, least=LEAST_S, most=MOST_S)


def _fraction(job_id: int, claims: int) -> float:
    """Return a pseudo-random number from 0 to below 1: SplitMix64 (Steele, Lea, Flood 2014)."""
    mask = (1 << 64) - 1
    mixed = (job_id * 0x9E3779B97F4A7C15 + claims * 0xD1B54A32D192ED03) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


DEFAULT_RETRY: RetryPolicy = Exponential("10s", cap="1h")
