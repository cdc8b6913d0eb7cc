"""Events of schedules and their ticks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from rota.model.failure import one_line
from rota.model.units import plural
from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEvent(Event):
    """An event of one schedule."""

    schedule: str
    """Name of the schedule."""

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: {self._describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnqueued(ScheduleEvent):
    """A scheduled time became a job."""

    line = "job {job} enqueued for {scheduled_for:%Y-%m-%d %H:%M}Z"
    job: int
    """Id of the job."""
    scheduled_for: datetime
    """The scheduled time, an aware datetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(ScheduleEvent):
    """A scheduled time was skipped, because the earlier run `live` is not over."""

    level = logging.WARNING
    line = (
        "scheduled time {scheduled_for:%Y-%m-%d %H:%M}Z skipped, because job {live} is not over "
        "(recorded as job {job})"
    )
    job: int
    """Id of the job that records it in history."""
    scheduled_for: datetime
    """The scheduled time, an aware datetime."""
    live: int
    """Id of the job of the earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsMissed(ScheduleEvent):
    """Scheduled times came while no worker was up, and are skipped by the schedule's `catch_up`."""

    level = logging.WARNING
    runs: int
    """How many scheduled times were missed, counted up to 1,000."""
    is_more: bool
    """Whether there were more than were counted."""
    next_run_at: datetime
    """The next scheduled time, an aware datetime."""

    def _describe(self) -> str:
        more = "more than " if self.is_more else ""
        following = f"{self.next_run_at:%Y-%m-%d %H:%M}Z"
        return f"skipped {more}{plural(self.runs, 'missed run')}; next {following}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRefused(ScheduleEvent):
    """A schedule could not be planned, or its job not enqueued."""

    level = logging.ERROR
    reason: str
    """What is wrong, in words."""
    paused: bool
    """Whether the fault is in the schedule, which is paused; otherwise a later pass, or a worker
    that can read the schedule, tries again."""

    def _describe(self) -> str:
        return f"{'paused' if self.paused else 'delayed'}: {one_line(self.reason)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDisabled(ScheduleEvent):
    """The newest release has not declared the schedule for an hour; it no longer runs."""

    level = logging.WARNING
    line = "disabled, because the newest release does not declare it"
