"""Checks that find problems and say how to fix them.

A check is data: its name, its question, where its facts come from, and a pure judgement of them.
Checks write nothing, and no query takes longer than two seconds. A check that the role may not make
says so.
"""

from __future__ import annotations

from rota.observe.doctor.checks import CHECKS, Check, Examination, FactSource, examine
from rota.observe.doctor.finding import Finding, Level, Thresholds

__all__ = [
    "CHECKS",
    "Check",
    "Examination",
    "FactSource",
    "Finding",
    "Level",
    "Thresholds",
    "examine",
]
