"""Gates: claimed jobs pass them in a row before their handlers are called.

Each gate answers one question: may these begin now, and if not, when? Nearly all jobs have no gate;
`Executor.take` picks the others. This table says which jobs ask which, and when:

| gate         | asked for                              | before the slot | in it |
|--------------|----------------------------------------|-----------------|-------|
| start        | jobs whose rate limit let them wait    | 1               |       |
| suspects     | jobs that were lost with their worker  | 2               |       |
| results      | jobs that waited for others            |                 | 1     |
| start record | jobs of which no start may go unseen   |                 | 2     |

An attempt that must wait is *parked*: without a slot until a time, or in its slot. What is asked
last is given back least, so in the slot the order is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.outcome import End
from rota.worker.attempt import Attempt

REFUSED_S = 10.0
"""Seconds until a job comes again whose gate cannot be asked."""

Answers = Mapping["Attempt", "float | End"]
"""Which of a batch may not begin now: each with when to ask again, in monotonic seconds, or with
its outcome."""

ALL_MAY_BEGIN: Answers = {}


class Gate(Protocol):
    """One reason why a claimed job may not begin now. All methods are called on the worker's loop;
    a method that a gate does not have says nothing."""

    is_first: bool = False
    """Whether it is asked before an attempt has a slot; otherwise it is asked in it."""
    again: set[Attempt]
    """Parked attempts for which it is to be asked at once, whatever it answered before. Each gate
    makes its own set; the gatekeeper empties it."""

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of a claimed batch that pass this gate. Only of these it is asked: jobs that
        were lost, whose start must be recorded or lies ahead, or that have a meta."""
        ...

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Say which attempts without a slot may not begin now.

        Raises DatabaseUnavailable; then it is asked again for all of them.
        """
        return ALL_MAY_BEGIN

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """The last question for attempts that have a slot. Answers and errors as of `ask`."""
        return ALL_MAY_BEGIN

    def note_end(self, attempt: Attempt) -> None:
        """Note that the outcome of an attempt is known, whether it began or not."""
        return

    def note_written(self, attempt: Attempt) -> None:
        """Note that the outcome of a suspect is written, or never will be."""
        return
