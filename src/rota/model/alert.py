"""What is told of an alert, and when. Pure: the store writes it, upkeep tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

OVER_AFTER = 2
"""An alert is over when so many evaluations in a row did not find it: a figure that moves about its threshold is not told of twice a minute."""


class AlertStep(StrEnum):
    """What becomes of one subject of a rule."""

    FIRES = "fires"
    REPEATS = "repeats"
    OVER = "over"
    MISSED = "missed"
    """It was not found, this once: nothing is told yet."""
    STILL = "still"
    """It was told of already, and nothing new is to be told."""


@dataclass(frozen=True, slots=True)
class AlertMatch:
    """What a rule finds now of one subject."""

    subject: str
    value: float
    message: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What was told of a subject before."""

    subject: str
    told: int
    """How often; it only grows."""
    is_over: bool
    missed: int
    """Evaluations in a row that did not find it."""
    told_s: float
    """How long ago the last time was."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write of one subject, as it was seen."""

    step: AlertStep
    subject: str
    told: int
    finding: AlertMatch | None


def decide(
    found: Iterable[AlertMatch], standing: Iterable[Standing], repeat_after_s: float | None
) -> list[Decision]:
    """Decide about every subject that is found or stands; those that are over and stay so are left out."""
    findings = {finding.subject: finding for finding in found}
    before = {known.subject: known for known in standing}
    decided = []
    for subject in sorted(findings.keys() | before.keys()):
        step = _step(subject in findings, before.get(subject), repeat_after_s)
        if step is not None:
            told = before[subject].told if subject in before else 0
            decided.append(Decision(step, subject, told, findings.get(subject)))
    return decided


def _step(is_found: bool, known: Standing | None, repeat_after_s: float | None) -> AlertStep | None:
    if known is None or known.is_over:
        return AlertStep.FIRES if is_found else None
    if not is_found:
        return AlertStep.OVER if known.missed + 1 >= OVER_AFTER else AlertStep.MISSED
    if repeat_after_s is not None and known.told_s >= repeat_after_s:
        return AlertStep.REPEATS
    return AlertStep.STILL
