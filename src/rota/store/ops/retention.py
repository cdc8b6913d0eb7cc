"""How dead jobs and old rows are removed in time."""

from __future__ import annotations

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals
from rota.store.ops.portion import take_portion

FORGOTTEN = (
    *("keys", "workers", "actions", "runs", "figures", "alerts"),
    *("effects", "effects not done", "breakers", "batches", "limits"),
)
"""The kinds of rows that `rows_forget` knows."""


def forget_rows(what: str, limit: int) -> Operation[int]:
    """Delete rows of a kind that were kept long enough, the oldest first; return how many."""
    [(deleted,)] = yield Query("rows_forget", {"what": what, "limit": limit})
    return int(deleted)


def archive_dead(limit: int) -> Operation[tuple[int, Refusals]]:
    """Archive jobs that have been dead for long enough; return how many, and the refusals."""
    candidates = Query("jobs_long_dead", {"limit": limit})
    rows, refusals = yield from take_portion("dead_archive", {"limit": limit}, candidates)
    return sum(row[0] for row in rows), refusals


def free_keys(limit: int) -> Operation[int]:
    """Free keys whose job was deleted by hand, among the next live keys; return how many."""
    return (yield Query("keys_free", {"limit": limit}))[0][0]  # type: ignore[no-any-return]
