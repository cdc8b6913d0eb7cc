"""The server's clock, against the worker's own, which nobody sets."""

from __future__ import annotations

SURE_S = 0.5  # the server's clock is read by answers that take no longer
STEP_S = 2.0  # a clock that differs by more from what is expected was set


class ServerClock:
    """Notices when somebody sets the server's clock and no leases were moved for that."""

    _base: tuple[float, float] | None = None

    def note(self, time: float, moved_s: float, before: float, after: float) -> float | None:
        """Note the server's `time` in an answer between two instants of the own clock. `moved_s` is
        the sum of all moves of the leases. Return by how many seconds the clock was set, forward or
        back, without such a move; None: it was not. These seconds come again until the leases move.
        A worker whose own clock stood still returns seconds too; workers whose clocks agree with
        the server's accept the move."""
        ahead_s, took_s = time - before, after - before
        base = self._base or (ahead_s, moved_s)
        late_s = ahead_s - base[0]
        missed_s = late_s - (moved_s - base[1])
        if not (-STEP_S <= late_s <= took_s + STEP_S or -STEP_S <= missed_s <= took_s + STEP_S):
            return missed_s
        if took_s <= SURE_S:
            self._base = ahead_s, moved_s
        return None
