"""The figures, their targets, and the table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

STEADY = ("×", "%", "", "/s", "B/job", "per job")
"""Units of ratios within a turn and of counts: they mean the same on a machine that slows down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its unit and, if there is one, its target."""

    part: str
    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    """What it was computed from; it goes into the JSON only."""
    reference: dict[str, float] = field(default_factory=dict)
    """What small statements cost beside it, as `bench.reference.Speed` has it."""

    @property
    def target(self) -> str:
        """The target in words; empty without one."""
        if self.at_least is not None:
            return f"≥ {readable(self.at_least)} {self.unit}".strip()
        return f"≤ {readable(self.at_most)} {self.unit}".strip() if self.at_most is not None else ""

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def beside(self) -> str:
        """A speed or a time as a share of that of a bare INSERT; empty for what is neither."""
        insert_us = self.reference.get("insert_us", math.nan)
        shares = {"jobs/s": self.value * insert_us / 1e6, "ms": self.value * 1e3 / insert_us}
        share = shares.get(self.unit, math.nan)
        return f"{readable(share)} ×" if math.isfinite(share) else ""

    def as_json(self) -> dict[str, Any]:
        """Return it for the JSON; a figure that could not be computed is null there."""
        value = self.value if math.isfinite(self.value) else None
        return {**asdict(self), "value": value, "met": self.met}


def readable(value: float) -> str:
    """Round to the digits that mean something."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; NaN without
    values."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def table(figures: Iterable[Figure], title: str) -> Table:
    """Return the table of all figures with their targets."""
    made = Table(title=title, title_justify="left")
    made.add_column("part")
    made.add_column("what")
    made.add_column("figure", justify="right")
    made.add_column("unit")
    made.add_column("of an INSERT", justify="right")
    made.add_column("target")
    made.add_column("met")
    made.add_column("note", style="dim")
    before = ""
    for figure in figures:
        met = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[figure.met]
        if before and figure.part != before:
            made.add_section()
        made.add_row(
            "" if figure.part == before else figure.part,
            figure.name,
            readable(figure.value),
            figure.unit,
            figure.beside,
            figure.target,
            met,
            figure.note,
        )
        before = figure.part
    return made
