"""What the rules of alerts found."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.observe.events.event import Event

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFired(Event):
    """A rule of alerts found something that a person should know, or, `repeated`, still finds it after a while. `subject` is an error type, a queue, a
    job type or a schedule; empty where the rule has but one. Of a whole fleet one process tells it."""

    level = logging.ERROR
    rule: str
    subject: str
    severity: str
    message: str
    value: float
    since: datetime
    repeated: bool

    def describe(self) -> str:
        since = f" (since {self.since.isoformat(timespec='seconds')})" if self.repeated else ""
        return f"alert {self.rule!r}: {self.message}{since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOver(Event):
    """What an alert was about has not been found any more, twice in a row. `message` and `value` are the last that were found."""

    rule: str
    subject: str
    message: str
    value: float
    since: datetime

    def describe(self) -> str:
        return f"alert {self.rule!r} is over: {self.message} (since {self.since.isoformat(timespec='seconds')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotTold(Event):
    """A rule could not be evaluated, or an alert could not be posted, or its job not enqueued. A later pass evaluates and posts again."""

    level = logging.WARNING
    rule: str
    subject: str
    reason: str

    def describe(self) -> str:
        return f"alert {self.rule!r}{' of ' + self.subject if self.subject else ''}: {self.reason}"
