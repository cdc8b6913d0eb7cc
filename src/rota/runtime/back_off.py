"""Pauses that grow: each is twice the one before."""

from __future__ import annotations


class BackOff:
    """The pauses between tries of one thing."""

    __slots__ = ("_next_s", "first_s", "most_s")

    def __init__(self, first_s: float, most_s: float) -> None:
        self.first_s = first_s
        self.most_s = most_s
        self._next_s = first_s

    @property
    def is_fresh(self) -> bool:
        """Whether no pause has been taken since the last reset."""
        return self._next_s == self.first_s

    def next_s(self) -> float:
        """Return how long to pause now; the next pause is twice as long."""
        pause_s = min(self._next_s, self.most_s)
        self._next_s = min(pause_s * 2, self.most_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._next_s = self.first_s
