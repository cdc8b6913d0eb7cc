"""Where a worker looks for due jobs. Pure: times are given, no clock is read.

For each (queue, priority) a worker keeps a *frontier*: the (run_at, id) up to which it has seen everything. Claims scan ahead of it, so they never
walk over the index entries of jobs that are gone, which vacuum cannot remove while any old snapshot is open. What turns up behind it all the same
(a transaction that committed late, a claim that was rolled back) is found by *looks back*: often a little, seldom far, and from the very beginning.

The promise, held by property tests: a job that becomes visible behind the frontier is found by the first look at least as deep as it lies behind; each
depth but the shallowest is looked at once per its period, or as often as its share of one connection's time allows, whichever is rarer; the
shallowest is part of every claim after one that came to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

Key = tuple[datetime, int]
"""(run_at, id): the order of jobs within one priority."""

BEGINNING: Key = (datetime(1970, 1, 1, tzinfo=UTC), 0)
EVERYTHING_S = 1e10
"""A depth further back than any run_at."""

DEPTHS_S = (0.25, 1.5, 6.0, 24.0, 96.0, 384.0, EVERYTHING_S)
PERIODS_S = (0.06, 0.25, 1.0, 4.0, 16.0, 64.0, 1.0)
"""The shortest time between two looks of each depth. That of everything is short: on a small table it costs nothing, on a large one SHARE rules."""

SHARE = 0.01
"""Of one connection's time, for each depth, over all workers."""


@dataclass(slots=True)
class Frontier:
    """The frontier of one (queue, priority)."""

    key: Key = BEGINNING
    reached_end: bool = True
    """Whether the last scan came to the end of what is due."""
    look_due_at: list[float] = field(default_factory=lambda: [0.0] * len(DEPTHS_S))
    """When each depth may be looked at again, on the caller's monotonic clock."""

    def depth_s(self, now: float) -> float:
        """How far behind the frontier the next claim should look: the deepest look that is due."""
        for level in range(len(DEPTHS_S) - 1, -1, -1):
            if now >= self.look_due_at[level]:
                return DEPTHS_S[level]
        return DEPTHS_S[0] if self.reached_end else 0.0

    def advance(
        self,
        now: float,
        took_s: float,
        depth_s: float,
        workers: int,
        started: datetime,
        last: Key | None,
        *,
        to_the_end: bool,
    ) -> bool:
        """Take in what a claim found here.

        Args:
            now: monotonic seconds, after the claim.
            took_s: how long the claim took.
            depth_s: how far behind the frontier it looked.
            workers: how many share the budget.
            started: the database's clock when the statement started.
            last: the greatest key it returned here; None when it returned nothing here.
            to_the_end: whether it saw everything that was due here.

        Returns:
            Whether more lay behind the frontier than the claim could take: then other workers should look back as well.
        """
        self.reached_end = to_the_end
        for level, covered_s in enumerate(DEPTHS_S):
            if covered_s < depth_s:
                self.look_due_at[level] = max(self.look_due_at[level], now + PERIODS_S[level])
            elif covered_s == depth_s:
                self.look_due_at[level] = now + max(PERIODS_S[level], took_s * workers / SHARE)
        if to_the_end:
            self.key = max(self.key, (started, 0))
            return False
        if last is None:
            return False
        behind = bool(depth_s) and last < self.key
        # More behind than it could take: go on from there, or it would be passed over until the next look.
        self.key = last if behind else max(self.key, last)
        return behind

    def look_back(self, to: datetime) -> None:
        """Go back to `to`: something became claimable behind."""
        self.key = min(self.key, (to, 0))

    def look_at_everything(self) -> None:
        """Let the next look be the deepest, whatever it costs."""
        self.look_due_at[-1] = 0.0
