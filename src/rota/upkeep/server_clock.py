"""The server's clock, against the worker's own, which nobody sets."""

from __future__ import annotations

SURE_S = 0.5  # the server's clock is read by answers that take no longer
STEP_S = 2.0  # a clock that differs by more from what is expected was set


class ServerClock:
    """Notices when somebody sets the server's clock."""

    _ahead_s: float | None = None

    def note(self, time: float, before: float, after: float) -> float | None:
        """Note what it said in an answer between two instants of the own clock. Return by how many
        seconds it was set since the last answer, forward or back; None: it was not."""
        late_s = 0.0 if self._ahead_s is None else time - before - self._ahead_s
        was_set = not -STEP_S <= late_s <= after - before + STEP_S
        if was_set or after - before <= SURE_S:
            self._ahead_s = time - before
        return late_s if was_set else None
