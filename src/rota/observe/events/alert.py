"""Events of alert rules."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.observe.events.event import Event

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFired(Event):
    """An alert rule found something that a person should know.

    `repeated`: the rule still finds it after `repeat_after`, or it has become critical. `subject`
    is an error type, a queue, a job type or a schedule, or empty if the rule has a single subject.
    Of all processes, one emits the event.
    """

    level = logging.ERROR
    rule: str
    subject: str
    severity: str
    message: str
    value: float
    since: datetime
    repeated: bool

    @property
    def level_now(self) -> int:
        return logging.WARNING if self.severity == "warning" else self.level

    def describe(self) -> str:
        since = f" (since {self.since.isoformat(timespec='seconds')})" if self.repeated else ""
        return f"alert {self.rule!r}: {self.message}{since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOver(Event):
    """Two evaluations in a row did not find the subject of an alert.

    `message` and `value` are the last that were found.
    """

    rule: str
    subject: str
    message: str
    value: float
    since: datetime

    def describe(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"alert {self.rule!r} is over: {self.message} (since {since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotSent(Event):
    """A rule could not be evaluated, an alert could not be posted, or its job not enqueued.

    A later pass tries again.
    """

    level = logging.WARNING
    rule: str
    subject: str
    reason: str

    def describe(self) -> str:
        return f"alert {self.rule!r}{' of ' + self.subject if self.subject else ''}: {self.reason}"
