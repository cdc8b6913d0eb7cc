"""Limits how often the same thing is reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from rota.runtime.clock import Clock


class Throttle:
    """Decides which of several things, each with a key, may be reported now. For one thread."""

    def __init__(
        self,
        clock: Clock,
        every_s: float,
        *,
        most: int | None = None,
        within_s: float = 0.0,
    ) -> None:
        """Allow: `every_s` seconds between two reports of a key, and `most` reports of all keys
        within `within_s`; None: any number."""
        self._clock = clock
        self._every_s = every_s
        self._most = most
        self._within_s = within_s
        self._said_at: dict[Hashable, float] = {}
        self._recent: deque[float] = deque()
        """When something was reported within the last `within_s`; only with `most`."""
        self._prune_at = clock.monotonic() + every_s

    def allows(self, key: Hashable = None) -> bool:
        """Whether `key` may be reported now; what is allowed counts as reported."""
        now = self._clock.monotonic()
        said_at = self._said_at.get(key)
        if (said_at is not None and now - said_at < self._every_s) or self._is_full(now):
            return False
        if now >= self._prune_at:
            since = now - self._every_s
            self._said_at = {key: at for key, at in self._said_at.items() if at > since}
            self._prune_at = now + self._every_s
        self._said_at[key] = now
        if self._most is not None:
            self._recent.append(now)
        return True

    def reset(self) -> None:
        """Forget all reports: every key is allowed again."""
        self._said_at.clear()
        self._recent.clear()

    def _is_full(self, now: float) -> bool:
        while self._recent and now - self._recent[0] >= self._within_s:
            self._recent.popleft()
        return self._most is not None and len(self._recent) >= self._most
