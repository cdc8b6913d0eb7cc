"""Events of alert rules."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFired(Event):
    """An alert rule found something that a person should know. Of all processes, one emits it."""

    level = logging.ERROR
    rule: str
    """Name of the alert rule."""
    subject: str
    """An error type, a queue, a job type or a schedule; empty: the rule has a single subject."""
    severity: str
    """`warning` or `critical`."""
    message: str
    """What was found, in a sentence."""
    value: float
    """What the rule measured: jobs, failures a minute, or seconds, by its kind."""
    since: datetime
    """When it was first found, an aware datetime."""
    repeated: bool
    """Whether it was reported before: it still stands after `repeat_after`, or became critical."""

    @property
    def level_now(self) -> int:
        return logging.WARNING if self.severity == "warning" else self.level

    def _describe(self) -> str:
        since = f" (since {self.since.isoformat(timespec='seconds')})" if self.repeated else ""
        return f"alert {self.rule!r}: {self.message}{since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOver(Event):
    """Two evaluations in a row did not find the subject of an alert."""

    rule: str
    """Name of the alert rule."""
    subject: str
    """As in `AlertFired`."""
    message: str
    """What was found last, in a sentence."""
    value: float
    """What the rule measured last, as in `AlertFired`."""
    since: datetime
    """When it was first found, an aware datetime."""

    def _describe(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"alert {self.rule!r} is over: {self.message} (since {since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotSent(Event):
    """A rule could not be evaluated, an alert could not be posted, or its job not enqueued.

    A later pass tries again.
    """

    level = logging.WARNING
    rule: str
    """Name of the alert rule."""
    subject: str
    """As in `AlertFired`; empty, too, if the rule could not be evaluated."""
    reason: str
    """Why, in words."""

    def _describe(self) -> str:
        return f"alert {self.rule!r}{' of ' + self.subject if self.subject else ''}: {self.reason}"
