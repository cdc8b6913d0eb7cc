"""How the payloads and texts of jobs are erased."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals, isolate
from rota.store.ops.actions import ACTION_MAX
from rota.store.ops.portion import take_portion


def find_to_erase(payload: str | None, job: int | None) -> Operation[tuple[list[int], list[int]]]:
    """Find jobs by what their payload contains, as JSON text, or one job by its id with its
    retries. Return the ids in the order to erase them, and earlier jobs of their chains with
    another payload."""
    rows = yield Query("erase_find", {"payload": payload, "job": job})
    found: tuple[list[int], list[int]] = [], []
    for id_, is_corrected in rows:
        found[is_corrected].append(id_)
    return found


def erase_jobs(
    ids: Sequence[int], why: str, by: str, filter: str
) -> Operation[tuple[dict[int, str], Refusals]]:
    """Erase jobs in batches of 1,000, in this order. Return what was done of each (erased,
    requested of a running job, erased before), and the reason of each refusal. In autocommit, as
    each batch is a transaction of its own."""
    answers: dict[int, str] = {}
    refusals: Refusals = {}

    def erase(some: Sequence[int]) -> Operation[dict[int, str]]:
        asked = {"ids": list(some), "why": why, "by": by, "filter": filter}
        return dict((yield Query("job_erase", asked)))

    if not ids:
        yield from erase([])  # that nothing was found is recorded, too
    for start in range(0, len(ids), ACTION_MAX):
        isolated = yield from isolate(ids[start : start + ACTION_MAX], erase)
        for some in isolated.answers:
            answers |= some
        refusals |= dict(isolated.refused)
    return answers, refusals


def erase_payload(payload: str) -> Operation[list[tuple[str, str]]]:
    """Erase what other rows have of a payload. Return what was taken from live work, and what could
    not be erased, each as what it is (batch, schedule, partition, secret) and its name."""
    return [(row[0], row[1]) for row in (yield Query("payload_erase", {"payload": payload}))]


def erase_ended(limit: int) -> Operation[tuple[int, Refusals]]:
    """Erase jobs that ran when they were to be erased, and have ended; return how many."""
    due = Query("erasures_due", {"limit": limit})
    rows, refusals = yield from take_portion("erasures_take", {"limit": limit}, due)
    return sum(row[0] for row in rows), refusals
