"""How jobs past their expiry are ended."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals
from rota.store.ops.portion import take_portion


class Overdue(msgspec.Struct, frozen=True):
    """A job that was not started before its expiry, with what delayed it. `claim` is its last
    claim, `attempt` the attempt that never began."""

    job: int
    job_type: str
    claim: int
    attempt: int
    expires_at: datetime
    message: str
    status: str
    """dead, or cancelled: dropped by its type's on_expired."""


def expire(
    worker: str, after: datetime, after_id: int, limit: int
) -> Operation[tuple[datetime, list[Overdue], Refusals]]:
    """End waiting jobs whose expiry has passed, from the key (expires_at, id) on. Return them with
    the database's clock, and the refusals."""
    where = {"after": after, "after_id": after_id, "limit": limit}
    candidates = Query("jobs_overdue", where)
    rows, refusals = yield from take_portion(
        "expirer_pass", {"worker": worker, **where}, candidates
    )
    return rows[0][0], [Overdue(*row[1:]) for row in rows if row[1] is not None], refusals
