"""The server's clock, against the worker's own, which nobody sets."""

from __future__ import annotations

SURE_S = 0.5  # the server's clock is read by answers that take no longer
STEP_S = 2.0  # a clock that differs by more from what is expected was set


class ServerClock:
    """Notices when somebody sets the server's clock and no leases were moved for that."""

    _ahead_s: float | None = None

    def note(self, time: float, moved_s: float, before: float, after: float) -> float | None:
        """Note what it said in an answer between two instants of the own clock. `moved_s`: by how
        many seconds leases were moved along with it, in all. Return by how many seconds it was set,
        forward or back, for which they were not; None: it was not. They are missed until they are
        moved."""
        ahead_s = time - before - moved_s
        late_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
        if not -STEP_S <= late_s <= after - before + STEP_S:
            return late_s
        if after - before <= SURE_S:
            self._ahead_s = ahead_s
        return None
