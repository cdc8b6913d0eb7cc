"""What upkeep did to jobs and to the days of history, and what it could not do."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRefused(Event):
    """The database refuses what a part of the worker would do to one job, which stays as it is; the others are seen to, and a later pass tries again."""

    level = logging.ERROR
    line = "{service}: the database refuses job {job}, which stays as it is for now: {reason}"
    service: str
    job: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDropped(Event):
    """A day of history or attempts was dropped: it is older than what is kept."""

    line = "retention: {partition} dropped"
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKept(Event):
    """A day that is older than what is kept could not be dropped yet: mostly, somebody keeps a transaction open. A later pass tries again."""

    level = logging.WARNING
    line = "retention: {partition} stays for now: {reason}"
    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadArchived(Event):
    """So many dead jobs that nobody resolved for as long as they are kept moved to history, with a resolution that says so."""

    level = logging.WARNING
    line = "retention: {jobs} dead jobs that nobody resolved were archived"
    jobs: int
