"""Whether a figure grows: a straight line through its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import StatisticsError, linear_regression, mean

Point = tuple[float, float]
"""Jobs, and the figure when so many were made."""
MILLION = 1_000_000
FEWEST = 8
"""Samples of which a slope is judged."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line of least squares."""

    per_million: float
    """How much the figure grows per million jobs."""
    grew: float
    """How much the line rises over the samples."""
    at: float
    """The mean."""
    samples: int


def fit(points: Sequence[Point]) -> Line | None:
    """Fit the line; None: the points do not make one."""
    try:
        slope, _ = linear_regression([x for x, _ in points], [y for _, y in points])
    except StatisticsError:
        return None
    span = points[-1][0] - points[0][0]
    return Line(slope * MILLION, slope * span, mean(y for _, y in points), len(points))


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure grows too much if its line rises by more than both: one counts per million jobs, the
    other is what it wavers by, in a short run above all."""

    per_million: float
    wavers: float

    def allows(self, line: Line) -> bool:
        """Whether this growth is within it."""
        return line.per_million <= self.per_million or line.grew <= self.wavers
