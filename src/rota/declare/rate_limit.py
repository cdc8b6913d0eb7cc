"""How code declares a rate limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.declare.key import PlainKeyFunction, check_function
from rota.errors import DeclarationError, UsageError
from rota.model.bounds import check_integer, check_text
from rota.model.units import Duration, seconds

LIMIT_NAME_MAX = 100
STARTS_MAX = 1_000_000
PER_S = (0.1, 366 * 86_400.0)
"""The shortest and the longest `per`."""
BURST_SHARE = 10
"""The default burst is the limit divided by this number."""
PAUSE_S_MAX = 36_525 * 86_400.0
"""The longest time until a burst is free again: instants that far ahead must exist."""

_AS_TEXT = re.compile(r"\s*(\d+)\s*(?:/|per)\s*(\d*)\s*([smhd])[a-z]*\s*", re.IGNORECASE)
"""Such as 10/m, 10/minute or 100 per 5 minutes."""

CostFunction = Callable[..., int]


@dataclass(frozen=True)
class RateLimit:
    """A rate limit: jobs of its types start at most this often, over all workers.

    Types with a limit of one name share it. It limits starts, not how long jobs run or how many run
    at once. Raises DeclarationError for a figure out of range.
    """

    name: str
    """1 … 100 printable characters without blanks."""
    limit: int
    """Most slots in any window of `per`, 1 … 1,000,000. A busy worker begins a little after the
    slot: most starts in a window are limit + burst."""
    per: Duration
    """The length of the window, 100 ms … 366 days."""
    burst: int | None = None
    """Most starts at once, 1 … limit. The larger the burst, the slower the steady pace: limit −
    burst + 1 starts in `per`. Defaults to a tenth of the limit, at least 1."""
    key: PlainKeyFunction | None = None
    """What makes a key from the handler's arguments: a text with their names, as in `"{account}"`,
    or a function that returns a string, an integer or a UUID. Each key has the whole limit to
    itself. Where it raises, the enqueue inserts nothing. Defaults to none."""
    cost: int | CostFunction = 1
    """How many starts a job counts for, 1 … burst: a number, or a function as `key`. Defaults to
    1."""

    if not TYPE_CHECKING:

        def __new__(cls, name: Any = None, limit: Any = None, *_: Any, **given: Any) -> RateLimit:
            """Explain the text by which other libraries write a limit."""
            if isinstance(limit, str) and (text := _AS_TEXT.fullmatch(limit)):
                starts, per = text[1], f"{text[2] or 1}{text[3].lower()}"
                raise DeclarationError(
                    f"rate limit {name!r}: the limit and its window are two arguments: "
                    f'rota.RateLimit({name!r}, {starts}, "{per}")'
                )
            return super().__new__(cls)

    def __post_init__(self) -> None:
        try:
            self._check()
        except UsageError as error:
            raise DeclarationError(f"rate limit {self.name!r}: {error}") from None

    def _check(self) -> None:
        check_limit_name(self.name)
        check_integer(self.limit, "limit", 1, STARTS_MAX)
        check_per(self.per)
        if self.burst is not None:
            check_integer(self.burst, "burst", 1, self.limit)
        if self.burst_max * check_per(self.per) / (self.limit - self.burst_max + 1) > PAUSE_S_MAX:
            raise UsageError(
                f"a burst of {self.burst_max:,} is free again only after more than a hundred years"
            )
        check_function(self.key, "key", "{account}")
        if not callable(self.cost):
            self.check_cost(self.cost, "cost")

    def check_cost(self, value: Any, name: str = "what it returns") -> int:
        """Return the cost of a job. Raises UsageError."""
        try:
            return check_integer(value, name, 1, self.burst_max)
        except UsageError as error:
            raise UsageError(f"{error}: a job costs the burst at most") from None

    @property
    def burst_max(self) -> int:
        """The burst in force."""
        return max(1, self.limit // BURST_SHARE) if self.burst is None else self.burst

    @property
    def figures(self) -> dict[str, Any]:
        """The figures that all who share the limit must declare alike."""
        return {
            "name": self.name,
            "starts": self.limit,
            "per_s": check_per(self.per),
            "burst": self.burst_max,
            "keyed": self.key is not None,
        }

    def in_words(self) -> str:
        """Return its figures, for a person."""
        keyed = "each key" if self.key is not None else "all jobs together"
        return f"{self.limit} per {self.per} with a burst of {self.burst_max} for {keyed}"


if not TYPE_CHECKING:  # as `inspect.signature` shall show it
    RateLimit.__new__.__wrapped__ = RateLimit.__init__


def check_limit_name(value: Any) -> str:
    """Return the name of a limit. Raises UsageError for an unfit name."""
    name = check_text(value, "a rate limit's name", LIMIT_NAME_MAX)
    if any(sign.isspace() for sign in name):
        raise UsageError(f"a rate limit's name has no blanks, unlike {name!r}")
    return name


def check_per(value: Any) -> float:
    """Return `per` in seconds. Raises UsageError."""
    return seconds(value, name="per", least=PER_S[0], most=PER_S[1])


def check_rate_limit(value: Any, name: str) -> RateLimit | None:
    if value is not None and not isinstance(value, RateLimit):
        raise UsageError(f"{name} must be a rota.RateLimit(…), not {value!r}")
    return value
