"""Jobs whose worker was lost with them. One of them may be what killed it, so they begin one after the other: what dies with the next worker is
the guilty one, and not its neighbours."""

from __future__ import annotations

from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.worker.held import Held

SURVIVED_S = 1.0
"""A job lost once that has run for so long lets the next begin: many long jobs that went down with a host must not wait for each other."""
SURVIVED_S_MAX = 60.0
"""It is four times as long for each further loss of one of the two, up to this."""
TURN_S_MAX = 10.0
"""Other workers help, so none is put off for longer."""


class Suspects:
    """The suspects that run in this worker, or have ended and are not written yet."""

    def __init__(self) -> None:
        self._running: set[Held] = set()
        self._begun = 0

    def add(self, held: Held) -> None:
        """It is about to begin."""
        self._running.add(held)
        self._begun += 1

    def turns(self) -> Iterator[float]:
        """For those that waited in vain, one after the other: in how many seconds their turn comes, at the pace at which suspects have begun lately.
        Else all of them would be claimed and handed back again and again, in front of jobs that nobody suspects."""
        each_s, self._begun = 1 / max(1, self._begun), 0
        for place in count():
            yield min(SURVIVED_S + place * each_s, TURN_S_MAX)

    def discard(self, held: Held) -> None:
        """What it came to is written."""
        self._running.discard(held)

    def let_begin(self, held: Held) -> bool:
        """Whether a suspect may begin now: beside others only if each of them has been running for a while."""
        now = monotonic()
        return all(
            one.started_at is not None and now - one.started_at >= _survival_s(one, held)
            for one in self._running
        )


def _survival_s(one: Held, other: Held) -> float:
    return min(SURVIVED_S * 4.0 ** (max(one.job.losses, other.job.losses) - 1), SURVIVED_S_MAX)
