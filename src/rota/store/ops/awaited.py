"""How jobs that wait for others go on, and what they are told."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.awaited import Awaits, JobResult, Results
from rota.store.driver import Operation, Query, format_numbers


class WaitSweep(msgspec.Struct, frozen=True):
    """What one pass over the jobs that others wait for found."""

    last_wait: str | None
    """The next pass goes on behind it; None: this one came to the end."""
    waits: int
    """How many jobs wait there."""
    released: int
    is_busy: bool
    """Whether it did nothing, because another session sweeps."""


def sweep_waits(after: str, limit: int) -> Operation[WaitSweep]:
    """Let jobs go on that wait for jobs which have ended; among `limit` of them behind `after`,
    '' is from the first."""
    rows = yield Query("waits_sweep", {"after": after or "job ", "limit": limit})
    return WaitSweep(*rows[0])


def read_results(waiters: Sequence[Awaits]) -> Operation[list[Results]]:
    """Read what came of the jobs that each of these has waited for, in their order.

    One that runs before its last wait is over, because a person wanted it so, is told nothing of
    that wait: its handler waits again.
    """
    asked = sorted({id_ for one in waiters for id_ in one.all})
    rows = yield Query("results_of", {"ids": format_numbers(asked)})
    found = {row[0]: JobResult(*row) for row in rows}
    return [_choose(one, found) for one in waiters]


def _choose(awaits: Awaits, found: Results) -> Results:
    ended = [
        id_
        for id_ in awaits.jobs
        if id_ in found and (awaits.on_failure == "tell" or found[id_].outcome != "dead")
    ]
    is_over = len(ended) == len(awaits.jobs)
    told = awaits.all if is_over else awaits.before
    return {id_: found[id_] for id_ in told if id_ in found}
