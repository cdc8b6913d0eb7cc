"""What became of the ticks of schedules, and of schedules themselves."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.model.failure import one_line
from rota.observe.events.event import Event

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEvent(Event):
    """Something about one schedule."""

    schedule: str

    def text(self) -> str:
        return f"schedule {one_line(self.schedule)}: {self.describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnqueued(ScheduleEvent):
    """A tick of a schedule became a job."""

    line = "job {job} enqueued for {scheduled_for:%Y-%m-%d %H:%M}Z"
    job: int
    scheduled_for: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(ScheduleEvent):
    """A tick of a schedule was skipped, because the job `live` of it was still going. `job` is its row in history."""

    level = logging.WARNING
    line = "tick {scheduled_for:%Y-%m-%d %H:%M}Z skipped as job {job}, job {live} is still going"
    job: int
    scheduled_for: datetime
    live: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksMissed(ScheduleEvent):
    """So many ticks came while no worker was up, and are passed over: `catch_up` says so. They are counted up to a thousand; `is_more`: there were
    more."""

    level = logging.WARNING
    ticks: int
    is_more: bool
    next_run_at: datetime

    def describe(self) -> str:
        count = f"{'more than ' if self.is_more else ''}{self.ticks} missed tick{'' if self.ticks == 1 else 's'}"
        return f"{count} passed over; the next is {self.next_run_at:%Y-%m-%d %H:%M}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRefused(ScheduleEvent):
    """A schedule cannot be planned, or its job not be enqueued. `paused`: it is the row's own fault, and it is paused until somebody mends it; else a
    later pass tries again."""

    level = logging.ERROR
    reason: str
    paused: bool

    def describe(self) -> str:
        return f"{'paused' if self.paused else 'its tick has to wait'}: {one_line(self.reason)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDisabled(ScheduleEvent):
    """The newest release has not declared the schedule for an hour; it no longer runs."""

    level = logging.WARNING
    line = "disabled, the newest release does not declare it"
