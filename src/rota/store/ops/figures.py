"""The current state and the figures per hour. The cost does not grow with the number of jobs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from typing import ClassVar, TypeVar

import msgspec

from rota.model.bounds import COUNT_MAX
from rota.model.record import Record
from rota.store.driver import Operation, Query, Row
from rota.store.ops.read import oldest_due


class Figures(Record, frozen=True):
    """How the jobs of a type ended, in one hour or in all requested hours.

    Percentiles are exact to 10 %; None: there is no job.
    """

    job_type: str
    """Name of the job type."""
    hour: datetime | None
    """The beginning of the hour; None: the sum of all hours."""
    succeeded: int
    """How many jobs succeeded."""
    succeeded_late: int
    """How many of the succeeded jobs had a failed attempt before."""
    retried: int
    """Failed attempts that were followed by a retry."""
    dead: int
    """Attempts after which the job was dead."""
    failed_by_release: dict[str, int]
    """Failed attempts (`retried` and `dead`) by the release that ran them, most first. Attempts
    without a known release, such as of expired jobs, are left out."""
    cancelled: int
    """How many jobs were cancelled."""
    waited_p50_s: float | None
    """Median seconds from when the last attempt was due until its handler began, of successes."""
    waited_p95_s: float | None
    """The 95th percentile of the same seconds."""
    ran_p50_s: float | None
    """Median seconds that the handler ran, of successes."""
    ran_p95_s: float | None
    """The 95th percentile of the same seconds."""


class Stats(Record, frozen=True):
    """The current state, and the figures of the last hours."""

    __json_names__: ClassVar[dict[str, str | None]] = {"oldest_due_at": "oldest_due"}

    jobs: dict[str, int]
    """Unfinished jobs by status; a count that reaches `counted_to` means "at least"."""
    counted_to: int
    """The number of jobs at which counting stops."""
    oldest_due_at: datetime | None
    """When the oldest due job was due, an aware datetime; None: nothing is due."""
    oldest_due_s: float | None
    """Seconds that the oldest due job has waited; None: nothing is due."""
    complete_to: datetime
    """The end of the figures below, an aware datetime: at most about a minute ago while a worker is
    up."""
    failed_by_release: dict[str, int]
    """Failed attempts by release, over all hours and types."""
    types: list[Figures]
    """The figures of each job type, over all requested hours."""
    hours: list[Figures]
    """The figures of each job type by hour, latest first; an hour without an ended job is left
    out."""


def stats(hours: int, job_type: str | None, queue: str | None) -> Operation[Stats]:
    """Read the state, and the figures of the last hours, the current one included."""
    counts = yield Query("stats", {"limit": COUNT_MAX})
    oldest = yield from oldest_due()
    figures = yield Query("figures", {"hours": hours, "job_type": job_type, "queue": queue})
    types, per_hour = sum_up(row[1:] for row in figures if row[1] is not None)
    by_release: dict[str, int] = {}
    for figures_of_type in types:
        _add(by_release, figures_of_type.failed_by_release)
    return Stats(
        jobs=dict(counts),
        counted_to=COUNT_MAX,
        oldest_due_at=oldest and oldest[0],
        oldest_due_s=oldest and oldest[1],
        complete_to=figures[0][0],
        failed_by_release=_most_first(by_release),
        types=types,
        hours=per_hour,
    )


Buckets = dict[int, int]
Key = TypeVar("Key", int, str)


def sum_up(rows: Iterable[Row]) -> tuple[list[Figures], list[Figures]]:
    """Add up the rows of `figures`: per type, and per hour and type. In SQL this took five times as
    long."""
    of_type: dict[str, _Sum] = defaultdict(_Sum)
    of_hour: dict[tuple[datetime, str], _Sum] = {}
    for job_type, hour, *counts, releases, waited, ran in rows:
        part = _Sum(
            counts, _RELEASES.decode(releases), _BUCKETS.decode(waited), _BUCKETS.decode(ran)
        )
        of_type[job_type].add(part)
        if (hour, job_type) in of_hour:  # in another queue
            of_hour[hour, job_type].add(part)
        else:
            of_hour[hour, job_type] = part
    types = [total.figures(job_type, None) for job_type, total in sorted(of_type.items())]
    return types, [total.figures(job_type, hour) for (hour, job_type), total in of_hour.items()]


class _Sum(msgspec.Struct):
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * 5)
    releases: dict[str, int] = {}
    waited: Buckets = {}
    ran: Buckets = {}

    def add(self, other: _Sum) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        _add(self.releases, other.releases)
        _add(self.waited, other.waited)
        _add(self.ran, other.ran)

    def figures(self, job_type: str, hour: datetime | None) -> Figures:
        succeeded, succeeded_late, retried, dead, cancelled = self.counts
        waited, ran = percentiles(self.waited), percentiles(self.ran)
        releases = _most_first(self.releases)
        return Figures(
            job_type, hour, succeeded, succeeded_late, retried, dead, releases, cancelled,
            *waited, *ran,
        )  # fmt: skip


def _add(mine: dict[Key, int], its: dict[Key, int]) -> None:
    for key, count in its.items():
        mine[key] = mine.get(key, 0) + count


def _most_first(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda counted: (-counted[1], counted[0])))


def percentiles(buckets: Buckets) -> tuple[float | None, float | None]:
    """Return median and 95th percentile in seconds, each the middle of its bucket; None: empty."""
    numbers = sorted(buckets)
    upto = list(accumulate(map(buckets.__getitem__, numbers)))
    if not upto:
        return None, None
    at_p50, at_p95 = bisect_left(upto, 0.50 * upto[-1]), bisect_left(upto, 0.95 * upto[-1])
    return 0.001 * 1.2 ** (numbers[at_p50] - 0.5), 0.001 * 1.2 ** (numbers[at_p95] - 0.5)


_BUCKETS = msgspec.json.Decoder(Buckets)
_RELEASES = msgspec.json.Decoder(dict[str, int])


def roll_up_stats() -> Operation[bool]:
    """Add what ended since the last roll-up to the figures, up to one hour; return whether more is
    left."""
    return (yield Query("stats_roll_up"))[0][0]  # type: ignore[no-any-return]
