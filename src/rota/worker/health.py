"""Liveness and readiness of a worker, read from another thread: they report a blocked loop."""

from __future__ import annotations

from rota.model.failure import one_line
from rota.runtime.clock import Clock
from rota.runtime.service import PauseGate, Service
from rota.worker.loop_watch import LoopWatch

WEDGED_S = 10.0
"""A worker whose loop has not turned for this long is not live. A shorter block harms no lease."""
HEARTBEAT_S = 15.0
SILENT_S = 3 * HEARTBEAT_S
"""Without an answer for this long a statement hangs: a heartbeat is sent each `HEARTBEAT_S`."""


class Health:
    """The state of the parts that a worker cannot do without. `liveness` and `readiness` may be
    called from any thread; None means live, or ready."""

    def __init__(self, pause_gate: PauseGate, clock: Clock) -> None:
        self.is_stopping = False
        self.passes = 0
        """Good passes of maintenance, in which the database answered all parts of the worker."""
        self._pause_gate = pause_gate
        self._clock = clock
        self._answered_at = clock.monotonic()
        self._watch: LoopWatch | None = None
        self._asking: tuple[Service, ...] = ()
        self.services: tuple[Service, ...] = ()

    def begin(self, watch: LoopWatch, *asking: Service) -> None:
        """Take the parts of a worker. It cannot do without the statements of `asking`."""
        self.note_answer()
        self._watch, self._asking = watch, asking

    def note_answer(self) -> None:
        self._answered_at = self._clock.monotonic()

    def note_pass(self) -> None:
        self.passes += 1

    def find_refusals(self) -> str | None:
        """Return the parts that the database refuses now, and why; None: no part. Any thread."""
        parts: dict[str, list[str]] = {}
        for service in self.services:
            if (refusal := service.refusal) is not None:
                parts.setdefault(refusal, []).append(service.name)
        refused = "; ".join(f"{', '.join(names)}: {why}" for why, names in parts.items())
        return one_line(refused, 1_000) or None

    def liveness(self) -> str | None:
        """Return why the worker should be killed and replaced."""
        blocked_s = 0.0 if self._watch is None else self._watch.blocked_s
        if blocked_s <= WEDGED_S:
            return None
        return f"the event loop has been blocked for {blocked_s:.0f} s"

    def readiness(self) -> str | None:
        """Return why the worker takes no jobs now. The database's own error is only for the log."""
        if self.is_stopping:
            return "stopping"
        if not self._asking:
            return "starting"
        away_s = self._find_away_s()
        if away_s is not None:
            return f"the database has not answered for {away_s:.0f} s"
        if self._pause_gate.closed is not None:
            return "the database is a restored copy: it waits for `rota queues resume --copy`"
        return self.liveness()

    def _find_away_s(self) -> float | None:
        now = self._clock.monotonic()
        # Read once: the part's own thread may set it to None meanwhile.
        since = [at for part in self._asking if (at := part.away_since) is not None]
        if since:
            return now - min(since)
        silent_s = now - self._answered_at
        return silent_s if silent_s > SILENT_S else None
