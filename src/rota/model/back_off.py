"""Pauses that grow: each is twice the pause before. Pure: no clock is read."""

from __future__ import annotations

DOUBLINGS_MAX = 60
"""Beyond it any pause is the longest, and a float would overflow one day."""


def find_pause_s(first_s: float, most_s: float, tries: int) -> float:
    """Return the pause after `tries` that failed, 1 or more."""
    return min(first_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX), most_s)


class BackOff:
    """The pauses between tries of one thing."""

    __slots__ = ("first_s", "most_s", "tries")

    def __init__(self, first_s: float, most_s: float) -> None:
        self.first_s = first_s
        self.most_s = most_s
        self.tries = 0
        """Pauses since the last success, which sets it to 0."""

    def next_s(self) -> float:
        """Return how long to pause now; the next pause is twice as long."""
        self.tries += 1
        return find_pause_s(self.first_s, self.most_s, self.tries)
