"""The server's clock, against the worker's own, which nobody sets."""

from __future__ import annotations

SURE_S = 0.5  # the server's clock is read by answers that take no longer
STEP_S = 2.0  # a clock that differs by more from what is expected was set


class ServerClock:
    """Notices when somebody sets the server's clock and no leases were moved for that."""

    _base: tuple[float, float] | None = None

    def note(self, time: float, moved_s: float, before: float, after: float) -> float | None:
        """Note what it said in an answer between two instants of the own clock. `moved_s`: by how
        many seconds leases were moved along with it, in all. Return by how many seconds it was set,
        forward or back, for which they were not; None: it was not. They are missed until they are
        moved. A worker whose own clock stood still misses them, too; the others, whose clocks
        agree with the server's, take the move as it is."""
        ahead_s, took_s = time - before, after - before
        base = self._base or (ahead_s, moved_s)
        late_s = ahead_s - base[0]
        missed_s = late_s - (moved_s - base[1])
        if not (-STEP_S <= late_s <= took_s + STEP_S or -STEP_S <= missed_s <= took_s + STEP_S):
            return missed_s
        if took_s <= SURE_S:
            self._base = ahead_s, moved_s
        return None
