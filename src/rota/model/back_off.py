"""Pauses that grow: each is twice the one before. Pure: no clock is read."""

from __future__ import annotations

DOUBLINGS_MAX = 60
"""Past it a pause is the longest one in any case, and a float would overflow one day."""


def find_pause_s(first_s: float, most_s: float, tries: int) -> float:
    """Return the pause after `tries` that failed, 1 or more."""
    return min(first_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX), most_s)


class BackOff:
    """The pauses between tries of one thing."""

    __slots__ = ("_tries", "first_s", "most_s")

    def __init__(self, first_s: float, most_s: float) -> None:
        self.first_s = first_s
        self.most_s = most_s
        self._tries = 0

    @property
    def is_fresh(self) -> bool:
        """Whether no pause has been taken since the last reset."""
        return self._tries == 0

    def next_s(self) -> float:
        """Return how long to pause now; the next pause is twice as long."""
        self._tries += 1
        return find_pause_s(self.first_s, self.most_s, self._tries)

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._tries = 0
