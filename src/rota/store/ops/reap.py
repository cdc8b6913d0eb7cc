"""How jobs with expired leases are taken from their workers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals
from rota.store.ops.portion import take_portion


class Reaped(msgspec.Struct, frozen=True):
    """A job whose worker let its lease expire; `claim` and `worker` lost it."""

    job: int
    job_type: str
    claim: int
    attempt: int
    worker: str
    status: str
    run_at: datetime
    reason: str | None
    """The reason of its cancellation, or why its lease expired if it is dead; else None."""


def reap(
    since: datetime,
    limit: int,
    steady_s: float | None = None,
    step: tuple[float, float] | None = None,
) -> Operation[tuple[datetime, list[Reaped], Refusals]]:
    """Take jobs whose leases expired after `since` from their workers. Return them with the
    database's clock, and the refusals.

    `steady_s`: seconds since the calling worker's own connection came back; None: it was not away.
    `step`: by how many seconds the server's clock was set, and the sum of all moves of leases
    before; None: it was not set.
    """
    candidates = Query("jobs_lost", {"since": since, "limit": limit})
    step_s, moved_s = step or (None, None)
    times = {"steady_s": steady_s, "step_s": step_s, "moved_s": moved_s}
    params = {"since": since, "limit": limit, **times}
    rows, refusals = yield from take_portion("reaper_pass", params, candidates)
    return rows[0][0], [Reaped(*row[1:]) for row in rows if row[1] is not None], refusals
