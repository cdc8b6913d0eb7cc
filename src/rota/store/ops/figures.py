"""How things stand, and how they went: figures, none of which costs more the more jobs there are."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.db import Operation, Query
from rota.store.ops.read import oldest_due

COUNT_MAX = 10_000
"""Jobs are counted so far: a look at a full queue must not cost more than at an empty one."""
OVERRUNS_MAX = 20
"""So many jobs that run too long are named."""


class Figures(msgspec.Struct, frozen=True):
    """What became of the jobs of a type, in one hour or in all hours that were asked for. Percentiles are exact to 10 %; None: of nothing."""

    job_type: str
    hour: datetime | None
    """Its beginning; None: the sum of all hours."""
    succeeded: int
    succeeded_late: int
    """Of those that succeeded: after an attempt that failed."""
    retried: int
    """Attempts that failed and were to be tried again."""
    dead: int
    """Attempts after which the job was dead."""
    cancelled: int
    waited_p50_s: float | None
    """Of jobs that succeeded, from when the last attempt was due until its handler began."""
    waited_p95_s: float | None
    ran_p50_s: float | None
    """Of jobs that succeeded, how long the handler ran."""
    ran_p95_s: float | None


class Overrun(msgspec.Struct, frozen=True):
    """A job that has been running for longer than an attempt of its type may take."""

    id: int
    job_type: str
    queue: str
    worker: str
    started_at: datetime
    running_s: float
    timeout_s: float | None
    """None: its type was never declared."""


class Stats(msgspec.Struct, frozen=True):
    """How things stand, and how they went."""

    jobs: dict[str, int]
    """Jobs that are not over, by status; a count that reaches `counted_to` means at least so many."""
    counted_to: int
    oldest_due_at: datetime | None
    oldest_due_s: float | None
    """For how long the oldest due job has been waiting; None: nothing is due."""
    too_long: list[Overrun]
    """Jobs that run too long, those that began first."""
    folded_to: datetime | None
    """Until when `types` and `hours` are complete."""
    types: list[Figures]
    """For each job type, all hours that were asked for in one."""
    hours: list[Figures]
    """For each job type, hour by hour, the latest first; an hour in which nothing ended is left out."""


def stats(hours: int, job_type: str | None, queue: str | None) -> Operation[Stats]:
    """Read the figures; those of how it went of the last hours, the present one among them."""
    counts = yield Query("stats", {"limit": COUNT_MAX})
    oldest = yield from oldest_due()
    asked = {"job_type": job_type, "queue": queue}
    overruns = yield Query("jobs_too_long", {**asked, "read_max": COUNT_MAX, "limit": OVERRUNS_MAX})
    folded = yield Query("figures_folded")
    figures = [Figures(*row) for row in (yield Query("figures", {**asked, "hours": hours}))]
    return Stats(
        jobs=dict(counts),
        counted_to=COUNT_MAX,
        oldest_due_at=oldest and oldest[0],
        oldest_due_s=oldest and oldest[1],
        too_long=[Overrun(*row) for row in overruns],
        folded_to=folded[0][0] if folded else None,
        types=[one for one in figures if one.hour is None],
        hours=[one for one in figures if one.hour is not None],
    )


def fold_figures() -> Operation[bool]:
    """Add what ended in closed minutes to the figures, up to an hour of it; return whether there is more."""
    return (yield Query("figures_fold"))[0][0]  # type: ignore[no-any-return]


def forget_figures(limit: int) -> Operation[int]:
    """Forget figures that are kept no longer; return how many rows."""
    return (yield Query("figures_forget", {"limit": limit}))[0][0]  # type: ignore[no-any-return]
