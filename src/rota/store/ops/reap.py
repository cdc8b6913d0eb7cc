"""How jobs with expired leases are taken from their workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals
from rota.store.ops.portion import take_portion


@dataclass(frozen=True, slots=True)
class Reaped:
    """A job whose worker let its lease expire; `claim` and `worker` are those that lost it."""

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
    since: datetime, limit: int, steady_s: float | None = None, expected: float | None = None
) -> Operation[tuple[datetime, float, list[Reaped], Refusals]]:
    """Take jobs whose leases expired after `since` from their workers.

    Returns them with the database's clock, that of the server in seconds, and the jobs that the
    database refuses to change. `steady_s`: seconds since the calling worker's own connection came
    back; None: it was not away. `expected`: what the server's clock should say, in seconds.
    """
    candidates = Query("jobs_lost", {"since": since, "limit": limit})
    params = {"since": since, "limit": limit, "steady_s": steady_s, "expected": expected}
    rows, refusals = yield from take_portion("reaper_pass", params, candidates)
    [started, time, *_] = rows[0]
    return started, time, [Reaped(*row[2:]) for row in rows if row[2] is not None], refusals
