"""How code declares a circuit breaker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota.declare.key import PlainKeyFunction, check_function
from rota.declare.option import duration
from rota.errors import DeclarationError, UsageError
from rota.model.bounds import NAME_MAX, check_integer, check_text
from rota.model.breaker import FAILURES_MAX, BreakerRules
from rota.model.units import Duration

_TIME = duration(0.001, 366 * 86_400.0)


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker: after some failures of an endpoint its jobs wait, and then one tries.

    All workers share it. It counts timeouts, connections that fail, and the statuses 5xx and 429;
    never an error of the job itself. Raises UsageError for a value out of range.
    """

    name: str | None = None
    """1 … 200 printable characters without blanks. Job types with the same name share the breaker.
    Defaults to the job type's name."""
    key: PlainKeyFunction | None = None
    """What makes the key of the endpoint at the enqueue: a function of the handler's arguments, as
    in `lambda url: urlsplit(url).hostname`, or a text with their names. Where it raises, nothing is
    inserted. Each key is a breaker of its own. Defaults to none: one breaker."""
    failures: int = 5
    """Failures `within` the time, 1 … 1,000, that open the breaker."""
    within: Duration = "1m"
    """The time in which failures count, whatever succeeds between them."""
    open_for: Duration = "30s"
    """How long no job starts; doubled each time that the trial afterwards fails too."""
    max_open: Duration = "15m"
    """The longest time that no job starts."""

    def __post_init__(self) -> None:
        if self.name is not None:
            _check_name(self.name)
        check_function(self.key, "the breaker's key", "{account}")
        check_integer(self.failures, "failures", 1, FAILURES_MAX)
        _TIME.check(self.within, "within")
        if _TIME.check(self.max_open, "max_open") < _TIME.check(self.open_for, "open_for"):
            raise UsageError(
                f"max_open must not be below open_for: {self.max_open!r} is shorter than "
                f"{self.open_for!r}"
            )

    def make_rules(self, job_type: str) -> BreakerRules:
        """Return the figures for a job type. Raises DeclarationError for a name with blanks."""
        if self.name is None and " " in job_type:
            raise DeclarationError(
                f"job type {job_type!r}: give its breaker a name without blanks, as in "
                f"rota.Breaker({job_type.replace(' ', '_')!r})"
            )
        return BreakerRules(
            self.name or job_type,
            self.failures,
            _TIME.check(self.within, "within"),
            _TIME.check(self.open_for, "open_for"),
            _TIME.check(self.max_open, "max_open"),
        )


def _check_name(value: Any) -> None:
    name = check_text(value, "the breaker's name", NAME_MAX)
    if " " in name:  # a job waits for 'breaker NAME KEY'
        raise UsageError(f"a breaker's name has no blanks, unlike {name!r}")


def check_breaker(value: Any, name: str) -> Breaker | None:
    if value is not None and not isinstance(value, Breaker):
        raise UsageError(f"{name} must be a rota.Breaker(…), not {value!r}")
    return value
