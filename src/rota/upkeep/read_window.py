"""Where a recurring pass starts to read its index, so that it skips the entries of old jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.runtime.clock import Clock, count_usual

MARGIN = timedelta(seconds=60)
"""A pass reads from the start of the previous pass, less this."""
EVERYTHING_SHARE = 0.01
"""Share of one connection's time for passes that read all, for rows that came later than MARGIN."""
EVERYTHING_S = 60.0
"""Least seconds between two passes that read all."""
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ReadWindow:
    """The lower bound of one service's passes. The first pass reads everything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = BEGINNING
        self._reads_everything = False
        self._took_s = EVERYTHING_S * EVERYTHING_SHARE
        self.everything_at = 0.0
        """When a pass may read everything again, in monotonic seconds."""

    def begin(self) -> datetime:
        """Return where the pass that begins now reads from."""
        self._reads_everything = self._clock.monotonic() >= self.everything_at
        return BEGINNING if self._reads_everything else self._since - MARGIN

    def end(self, started: datetime, took_s: float) -> None:
        """Note the end of the pass, and when its last statement started by the database's clock."""
        self._since = started
        if self._reads_everything:
            self._took_s = count_usual(took_s, self._took_s)
            pause_s = max(EVERYTHING_S, self._took_s / EVERYTHING_SHARE)
            self.everything_at = self._clock.monotonic() + pause_s
