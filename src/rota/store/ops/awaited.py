"""How jobs that wait for others go on, and which results they get."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.awaited import JobResult, Results
from rota.store.driver import Operation, Query, format_numbers


class WaitSweep(msgspec.Struct, frozen=True):
    last_wait: str | None
    """The next pass goes on behind it; None: this pass came to the end."""
    waits: int
    released: int
    is_busy: bool
    """Whether it did nothing, because another session sweeps."""


def sweep_waits(after: str, limit: int) -> Operation[WaitSweep]:
    """Let jobs go on whose awaited jobs have ended: `limit` of them behind `after` ('': first)."""
    rows = yield Query("waits_sweep", {"after": after or "job ", "limit": limit})
    return WaitSweep(*rows[0])


def read_results(waiters: Sequence[int]) -> Operation[dict[int, Results]]:
    """Read the results of the jobs that jobs have waited for."""
    told: dict[int, dict[int, JobResult]] = {waiter: {} for waiter in waiters}
    for waiter, *result in (yield Query("results_of", {"waiters": format_numbers(waiters)})):
        ended = JobResult(*result)
        told[waiter][ended.id] = ended
    return {**told}
