"""Whether a worker lives and is ready, for others to ask: from another thread, since it is a blocked loop that they want to know of."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from rota.worker.lease import BEAT_S

if TYPE_CHECKING:
    from rota.runtime.service import Gate, Service
    from rota.worker.watch import LoopWatch

WEDGED_S = 10.0
"""A worker whose loop has not turned for so long is not well. A shorter block is logged, and harms no lease."""
SILENT_S = 3 * BEAT_S
"""A worker asks the database at least every `BEAT_S`; without an answer for so long, the question hangs."""


class Pulse:
    """What is known of the parts that a worker cannot do without. `unwell` and `unready` may be asked from any thread; None means well, or ready."""

    def __init__(self, gate: Gate) -> None:
        self.is_stopping = False
        self._gate = gate
        self.passes = 0
        """Passes of upkeep that were good, each with all parts of the worker well."""
        self._answered_at = monotonic()
        self._watch: LoopWatch | None = None
        self._asking: tuple[Service, ...] = ()

    def begin(self, watch: LoopWatch, *asking: Service) -> None:
        """The worker begins; `asking` are the parts that ask the database for what it cannot do without."""
        self.answered()
        self._watch, self._asking = watch, asking

    def answered(self) -> None:
        """The database has answered."""
        self._answered_at = monotonic()

    def passed(self) -> None:
        """Upkeep has done another good pass."""
        self.passes += 1

    def unwell(self) -> str | None:
        """Why the worker should be ended from outside."""
        blocked_s = 0.0 if self._watch is None else self._watch.blocked_s
        return (
            f"the event loop has been blocked for {blocked_s:.0f} s"
            if blocked_s > WEDGED_S
            else None
        )

    def unready(self) -> str | None:
        """Why the worker takes no jobs at present. What exactly the database said is for the log, not for whoever can reach the port."""
        if self.is_stopping:
            return "stopping"
        if not self._asking:
            return "starting"
        now = monotonic()
        away_s = max(
            (now - since for part in self._asking if (since := part.away_since) is not None),
            default=None,
        )
        if away_s is None and now - self._answered_at > SILENT_S:
            away_s = now - self._answered_at
        if away_s is not None:
            return f"the database has not answered for {away_s:.0f} s"
        if self._gate.closed is not None:
            return "the database is a restored copy: it waits for `rota resume --copy`"
        return self.unwell()
