"""Gates: claimed jobs pass them in a row before their handlers are called.

Each gate answers one question: may these begin now, and if not, when?
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rota.model.classify import Verdict
from rota.model.failure import error_type, message, stack
from rota.model.outcome import Failed, Failure, PutBack

if TYPE_CHECKING:
    from rota.errors import DatabaseUnavailable, UsageError
    from rota.model.outcome import End
    from rota.runtime.throttle import Throttle
    from rota.worker.attempt import Attempt


logger = logging.getLogger("rota")

LOG_S = 60.0
"""Seconds between two log lines about the same limit, or the same refusal."""
REFUSED_S = 10.0
"""Seconds until a job comes again whose limit or breaker cannot be asked."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now."""

    until: float = 0.0
    """In monotonic seconds: the gate is asked again then, or when a suspect has ended."""
    in_slot: bool = False
    """Whether it waits in its slot, its lease renewed, until the gate calls `Executor.begin`."""
    is_kept: bool = False
    """Whether the gate keeps it meanwhile, without a slot, until it calls `Executor.let_in`."""


Answers = Mapping["Attempt", "Wait | End"]
"""Which of a batch may not begin now: each with when it may, or with its outcome."""

ALL_MAY_BEGIN: Answers = {}


class Gate(Protocol):
    """One reason why a claimed job may not begin now."""

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """Return which of a batch may not begin now. There is a slot for each of them."""


def refuse_all(
    batch: Mapping[Attempt, str | None], error: DatabaseUnavailable, throttle: Throttle
) -> Answers:
    """Return the ends of attempts for which the database refuses to answer, each with what it waits
    for: here they would keep other jobs from being claimed. Raises any other error again."""
    if not error.refused:
        raise error
    if throttle.allows(str(error)):
        logger.warning("jobs with a limit or a breaker do not start: %s", error)
    return {
        attempt: PutBack(waits_for, str(error), REFUSED_S) for attempt, waits_for in batch.items()
    }


def fail_key(error: UsageError) -> End:
    """Return the end of an attempt of which no key can be made: no other attempt can, either."""
    cause = error.__cause__ or error
    return Failed(
        Failure(
            error_type(cause),
            message(error),
            Verdict.FATAL,
            "its key cannot be made",
            stack=stack(cause),
        )
    )
