"""Gates: claimed jobs pass them in a row before their handlers are called.

Each gate answers one question: may these begin now, and if not, when? Nearly all jobs have no gate;
`Executor.take` picks the others. This table says which jobs ask which, and when:

| gate         | asked for                              | before the slot | for it | in it |
|--------------|----------------------------------------|-----------------|--------|-------|
| breaker      | types with `breaker`                   | 1               | yes    | 1     |
| start        | jobs whose rate limit let them wait    | 2               |        |       |
| suspects     | jobs that were lost with their worker  | 3               |        |       |
| results      | jobs that waited for others            |                 | yes    | 2     |
| start record | jobs of which no start may go unseen   |                 | yes    | 3     |

An attempt that must wait is *parked*: without a slot until a time, or in its slot. What is asked
last is given back least, so in the slot the order is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from rota.declare.declaration import Declaration
from rota.errors import DatabaseUnavailable
from rota.model.outcome import End, HandedBack
from rota.runtime.throttle import Throttle
from rota.worker.attempt import Attempt

logger = logging.getLogger("rota")

LOG_S = 60.0
"""Seconds between two log lines about the same refusal."""
REFUSED_S = 10.0
"""Seconds until a job comes again whose gate cannot be asked."""


class Park(Enum):
    """Where an attempt waits that may not begin now, until its gate was asked again."""

    WITHOUT_SLOT = "without a slot"
    IN_SLOT = "in its slot"
    """Its lease is renewed meanwhile, and no other job gets the slot."""


Answers = Mapping["Attempt", "float | End"]
"""Which of a batch may not begin now: each with when to ask again, in monotonic seconds, or with
its outcome."""

ALL_MAY_BEGIN: Answers = {}


class Gate(Protocol):
    """One reason why a claimed job may not begin now. All methods are called on the worker's loop;
    a method that a gate does not have says nothing."""

    is_first: bool = False
    """Whether it is asked before an attempt has a slot; it may be asked in it as well."""
    types: frozenset[Declaration] = frozenset()
    """The types of which all jobs pass it."""
    keeps: bool = False
    """Whether it keeps something beside its answers."""
    again: set[Attempt]
    """Parked attempts for which it is to be asked at once, whatever it answered before. Each gate
    makes its own set; the gatekeeper empties it."""

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of a claimed batch that pass this gate. Only of these it is asked: types of
        `types`, jobs that were lost, whose start must be recorded or lies ahead, or that have a
        meta."""
        return [attempt for attempt in claimed if attempt.job_type in self.types]

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Say which attempts without a slot may not begin now.

        Raises DatabaseUnavailable; then it is asked again for all of them.
        """
        return ALL_MAY_BEGIN

    def look(self, attempt: Attempt, now: float) -> Park | End | None:
        """Say whether an attempt that gets a slot may not begin, as far as this worker knows: then
        `ask` or `ask_in_slot` says more."""
        return None

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """The last question for attempts that have a slot. Answers and errors as of `ask`."""
        return ALL_MAY_BEGIN

    def note_end(self, attempt: Attempt) -> bool:
        """Note that the outcome of an attempt is known, whether it began or not; return whether the
        gate itself gives it to the finisher, once it has kept what the outcome says."""
        return False

    def note_written(self, attempt: Attempt) -> None:
        """Note that the outcome of a suspect is written, or never will be."""
        return

    async def keep(self) -> float | None:
        """Write and read what the gate keeps beside its answers; return in how many seconds it
        wants to do so again, None: when it was asked.

        Raises DatabaseUnavailable.
        """
        return None

    async def flush(self, for_s: float) -> None:
        """Give the finisher the attempts that the gate has not given it yet. The worker goes
        down."""
        return


def refuse_all(
    batch: Mapping[Attempt, str | None], error: DatabaseUnavailable, throttle: Throttle
) -> Answers:
    """Return the ends of attempts for which the database refuses to answer, each with what it waits
    for: here they would keep other jobs from being claimed. Raises any other error again."""
    if not error.refused:
        raise error
    if throttle.allows(str(error)):
        logger.warning("jobs with a breaker do not start: %s", error)
    return {
        attempt: HandedBack(str(error), REFUSED_S, waits_for)
        for attempt, waits_for in batch.items()
    }
