"""Events of upkeep: what it did to jobs and to days of history, and what it could not do."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.model.units import plural
from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRefused(Event):
    """The database refuses what a part of the worker wants to do to one job.

    The job stays as it is; the other jobs are handled, and a later pass tries this one again.
    """

    level = logging.ERROR
    line = "{service}: the database refuses job {job}, which stays as it is for now: {reason}"
    service: str
    """The part of the worker, such as `scheduler`."""
    job: int
    """Id of the job."""
    reason: str
    """What the database said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDropped(Event):
    """A day of history or attempts was dropped: it is older than the setting."""

    line = "retention: {partition} dropped"
    partition: str
    """Name of the table, such as `job_history_20260131`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionArchived(Event):
    """A day of history or attempts was moved to the archive: it is older than the setting."""

    line = "retention: {partition} moved to the archive"
    partition: str
    """Name of the table, such as `job_history_20260131`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKept(Event):
    """A day that is older than the setting could not be dropped or archived yet.

    Usually a transaction has been open for long. A later pass tries again.
    """

    level = logging.WARNING
    line = "retention: {partition} stays for now: {reason}"
    partition: str
    """Name of the table, such as `job_history_20260131`."""
    reason: str
    """Why it stays, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysFreed(Event):
    """Idempotency keys were freed whose live jobs had been deleted from the table by hand."""

    level = logging.WARNING
    line = "retention: {keys} idempotency keys of deleted jobs were freed"
    keys: int
    """How many keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadArchived(Event):
    """Dead jobs that no person resolved within their time were moved to history.

    Their resolution says so.
    """

    level = logging.WARNING
    jobs: int
    """How many jobs."""

    def _describe(self) -> str:
        return f"retention: archived {plural(self.jobs, 'dead job')} that no person resolved"
