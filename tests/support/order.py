"""The order in which a run begins its tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(few: Sequence[T], many: Sequence[T], part: float = 1.0) -> list[T]:
    """Return all of both, each in its order, with the few evenly among the first `part` of the
    many. The first of the few comes first."""
    gap = part * len(many) / len(few) if few else 0.0
    placed = [(at * gap, 0, one) for at, one in enumerate(few)]
    placed += [(float(at), 1, one) for at, one in enumerate(many)]
    return [one for _, _, one in sorted(placed, key=lambda entry: entry[:2])]
