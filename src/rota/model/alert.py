"""Which notifications an alert needs, and when. Pure: store and maintenance write and send them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

OVER_AFTER = 2
"""Evaluations in a row without a match after which an alert is over: with one evaluation, a figure
that moves about its threshold would notify twice a minute."""


class AlertStep(StrEnum):
    FIRES = "fires"
    REPEATS = "repeats"
    OVER = "over"
    MISSED = "missed"
    """It is not found this once: no notification yet."""
    STILL = "still"
    """It is still found, and was notified: nothing new to send."""


class AlertMatch(msgspec.Struct, frozen=True):
    """One subject that a rule finds now."""

    subject: str
    value: float
    message: str
    severity: str


class Standing(msgspec.Struct, frozen=True):
    subject: str
    notifications: int
    """How many were sent; it only grows."""
    is_over: bool
    missed: int
    """Evaluations in a row that did not find it."""
    notified_s: float
    """Seconds since the last notification."""
    severity: str
    """The severity of the last notification."""


class Decision(msgspec.Struct, frozen=True):
    """What to write for one subject, with the count that was read."""

    step: AlertStep
    subject: str
    notifications: int
    match: AlertMatch | None


def decide(
    found: Iterable[AlertMatch], standing: Iterable[Standing], repeat_after_s: float | None
) -> list[Decision]:
    """Decide about every subject that is found or has an alert, unless the alert stays over."""
    matches = {match.subject: match for match in found}
    before = {known.subject: known for known in standing}
    decided = []
    for subject in sorted(matches.keys() | before.keys()):
        step = _step(matches.get(subject), before.get(subject), repeat_after_s)
        if step is not None:
            notifications = before[subject].notifications if subject in before else 0
            decided.append(Decision(step, subject, notifications, matches.get(subject)))
    return decided


def _step(
    match: AlertMatch | None, known: Standing | None, repeat_after_s: float | None
) -> AlertStep | None:
    if known is None or known.is_over:
        return AlertStep.FIRES if match else None
    if match is None:
        return AlertStep.OVER if known.missed + 1 >= OVER_AFTER else AlertStep.MISSED
    if match.severity == "critical" and known.severity != "critical":
        return AlertStep.REPEATS  # worse than reported: that does not wait
    if repeat_after_s is not None and known.notified_s >= repeat_after_s:
        return AlertStep.REPEATS
    return AlertStep.STILL
