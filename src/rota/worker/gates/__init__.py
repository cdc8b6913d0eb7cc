"""Gates: claimed jobs pass them in a row before their handlers are called.

Each gate answers one question: may these begin now, and if not, when?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rota.model.classify import Verdict
from rota.model.failure import error_type, message, stack
from rota.model.outcome import Failed, Failure

if TYPE_CHECKING:
    from rota.errors import UsageError
    from rota.model.outcome import End
    from rota.worker.attempt import Attempt


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
