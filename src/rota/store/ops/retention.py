"""How dead jobs and expired keys are removed in time."""

from __future__ import annotations

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals
from rota.store.ops.portion import take_portion


def archive_dead(limit: int) -> Operation[tuple[int, Refusals]]:
    """Archive jobs that have been dead for long enough; return how many, and those that were
    refused."""
    candidates = Query("jobs_long_dead", {"limit": limit})
    rows, refusals = yield from take_portion("dead_archive", {"limit": limit}, candidates)
    return sum(row[0] for row in rows), refusals


def expire_keys(limit: int) -> Operation[int]:
    """Delete keys that have expired; return how many."""
    return (yield Query("keys_expire", {"limit": limit}))[0][0]  # type: ignore[no-any-return]


def free_keys(limit: int) -> Operation[int]:
    """Free keys whose job was deleted by hand, among the next keys of live jobs; return how
    many."""
    return (yield Query("keys_free", {"limit": limit}))[0][0]  # type: ignore[no-any-return]
