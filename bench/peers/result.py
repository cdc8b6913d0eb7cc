"""What was measured, and its JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number of one turn."""

    what: str
    value: float | None
    """None: the system has no such thing, or it did not end; the note says which."""
    unit: str
    better: str
    """`more`, `less`, or nothing."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The median of the turns of a system in a setup."""

    scenario: str
    what: str
    unit: str
    better: str
    system: str
    setup: str
    value: float | None
    values: list[float]
    note: str
    history: str
    is_lead: bool
    is_default: bool

    def as_json(self) -> dict[str, Any]:
        """Return it for the JSON."""
        return asdict(self)


def fold(turns: Iterable[Measured]) -> tuple[float | None, list[float], str]:
    """Return the median, all values, and what was said of the turns."""
    values, notes = [], []
    for turn in turns:
        if turn.value is not None:
            values.append(turn.value)
        if turn.note and turn.note not in notes:
            notes.append(turn.note)
    return (median(values) if values else None), values, "; ".join(notes[-2:])


def by_table(figures: Iterable[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the figures of each scenario and question, the best first."""
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for figure in figures:
        tables.setdefault((figure["scenario"], figure["what"]), []).append(figure)
    for rows in tables.values():
        rows.sort(key=_rank)
    return tables


def _rank(figure: dict[str, Any]) -> tuple[bool, float]:
    value = figure["value"]
    if value is None:
        return True, 0.0
    return False, -value if figure["better"] == "more" else value
