"""The jobs that the database lets nobody claim: left out for a while, tried again, and told of."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.model.failure import one_line
from rota.upkeep.refused import RefusedJobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.observe.events import Bus
    from rota.store.ops import RefusedClaim

LEFT_OUT_MAX = 10_000
"""So many jobs may be left out; when there are more, it is no longer theirs but the database's fault."""
TRY_AGAIN_S = (10.0, 600.0)
"""The first and the longest time that a job is left out; doubled each time."""


class LeftOut:
    """What the claims of one worker know of them."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._told = RefusedJobs(bus, service)
        self._known: dict[int, tuple[float, int]] = {}
        """Until when each is left out, and how often it was refused."""

    def now(self) -> list[int] | None:
        """Those that are not to be tried again yet. None: there are too many of them."""
        now = monotonic()
        left_out = [job for job, (again_at, _) in self._known.items() if again_at > now]
        return left_out if len(left_out) < LEFT_OUT_MAX else None

    def add(self, refused: Sequence[RefusedClaim]) -> None:
        """Leave out what has just been refused, and say so."""
        if not refused:
            return
        now = monotonic()
        self._known = {
            job: known for job, known in self._known.items() if known[0] > now - TRY_AGAIN_S[1]
        }
        for one in refused:
            tries = self._known.get(one.id, (0.0, 0))[1]
            self._known[one.id] = now + min(TRY_AGAIN_S[0] * 2.0**tries, TRY_AGAIN_S[1]), tries + 1
        self._told.tell({one.id: one_line(one.reason) for one in refused})
