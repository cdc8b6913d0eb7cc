"""Sweeps that are an operation and a period: a sweeper runs them while they find something."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.store import ops
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.upkeep.sweeper import Sweeper

PLANNED_MAX = 1_000
"""Most jobs of one key of a limit that are planned anew at once."""
MENDED_MAX = 20
"""Most batches that are searched at once for members that were deleted by hand."""

Position = str | None


class Sweep(msgspec.Struct, frozen=True):
    """Work for all workers, done by the worker that the asker wakes."""

    name: str
    run: Callable[[Position], Operation[tuple[bool, Position]]]
    """Does a portion; returns whether something may be left, and where the sweep continues."""
    period_s: float
    """Seconds to pause while something is left; 0: it goes on at once, whoever else sweeps."""


def _fold_batches(_: Position) -> Operation[tuple[bool, Position]]:
    """Count ended jobs of batches that no worker has counted. Then look for deleted members."""
    is_left = yield from ops.fold_batches()
    return is_left or (yield from ops.mend_batches(MENDED_MAX)) > 0, None


def _roll_up_stats(_: Position) -> Operation[tuple[bool, Position]]:
    """Add finished jobs to the figures per hour, which readers read instead of history: those since
    any worker's last pass, an hour of them at a time."""
    return (yield from ops.roll_up_stats()), None


def _replan_limits(after: Position) -> Operation[tuple[bool, Position]]:
    """Plan jobs anew whose limit was raised or before which jobs are gone, by a thousand keys."""
    waiting, last = yield from ops.replan_limits(PLANNED_MAX, after)
    return bool(waiting or after), last


FIGURES = Sweep("figures", _roll_up_stats, 0)
SWEEPS = (Sweep("batch folder", _fold_batches, 1.0), FIGURES)
LIMITS = Sweep("limit planner", _replan_limits, 1.0)
"""Sweeps that a drain does not do before its jobs."""


class PlainSweeper(Sweeper):
    def __init__(self, bus: Bus, link: StoreLink, clock: Clock, sweep: Sweep) -> None:
        super().__init__(bus, link, clock)
        self.name = sweep.name
        self.sweep = sweep
        self._position: Position = None

    async def tick(self) -> float | None:
        is_left, self._position = await self._link.run(self.sweep.run(self._position))
        period_s = self.sweep.period_s
        if not is_left:
            return None
        return self.find_pause_s(period_s) if period_s else 0
