"""What ails a queue: checks that read a little, judge, and say what to do.

A check is data: its name, its question, where its facts come from, and a pure judgement of them. Nothing is written, no look takes longer than two
seconds, and a look that is not allowed says so and spoils no other.
"""

from __future__ import annotations

from rota.observe.doctor.checks import CHECKS, Check, Examination, Patient, examine
from rota.observe.doctor.finding import Finding, Level, Limits

__all__ = ["CHECKS", "Check", "Examination", "Finding", "Level", "Limits", "Patient", "examine"]
