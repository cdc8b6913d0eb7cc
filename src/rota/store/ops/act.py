"""What people do to jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rota.store.db import Operation, Query

CANCEL_MAX = 1_000
"""Jobs of one statement: it holds their locks, and workers wait for the end of it."""


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """What came of the wish to call a job off, and where the job stands now; None where there is no such job."""

    job: int
    answer: Literal["cancelled", "requested", "refused", "not found"]
    status: str | None


def cancel(ids: Sequence[int], why: str | None) -> Operation[list[CancelAnswer]]:
    """Call jobs off, in the order of their ids."""
    answers: list[CancelAnswer] = []
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), CANCEL_MAX):
        rows = yield Query("job_cancel", {"ids": ordered[start : start + CANCEL_MAX], "why": why})
        answers += [CancelAnswer(*row) for row in rows]
    return answers
