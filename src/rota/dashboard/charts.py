"""Charts: drawn by the server, with a table behind each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

HEIGHT = 100.0
STEP = 10.0
WIDTH = 8.0
HAIRLINE = 0.5
"""The least height of a part that is not empty."""
RECT = Markup('<rect class="{}" x="{:g}" y="{:.1f}" width="{:g}" height="{:.1f}"/>')
GROUP = Markup("<g><title>{}</title>{}</g>")


class Bar(NamedTuple):
    """What stands at one place of a chart."""

    label: str
    parts: Sequence[float | None]
    """From the bottom to the top; None: nothing is known."""


def draw(bars: Sequence[Bar], classes: Sequence[str], label: str) -> Markup:
    """Draw parts that stand on each other, in true heights. `classes` style the parts; `label` says
    what the chart shows, for people who do not see it."""
    most = max((sum(filter(None, bar.parts)) for bar in bars), default=0.0)
    drawn = Markup()
    for place, bar in enumerate(bars):
        top = HEIGHT
        rects = Markup()
        for part, name in zip(bar.parts, classes, strict=True):
            if part:
                height = max(HAIRLINE, HEIGHT * part / most)
                top -= height
                rects += RECT.format(name, place * STEP, max(top, 0.0), WIDTH, height)
        if rects:
            drawn += GROUP.format(_say(bar, classes), rects)
    return _frame(len(bars), label, drawn)


def draw_lines(bars: Sequence[Bar], classes: Sequence[str], label: str) -> Markup:
    """Draw each part as a line of its own, which ends where nothing is known."""
    most = max((part or 0.0 for bar in bars for part in bar.parts), default=0.0) or 1.0
    drawn = Markup()
    for row, name in enumerate(classes):
        path = " ".join(_trace([bar.parts[row] for bar in bars], most))
        drawn += Markup('<path class="line {}" d="{}"/>').format(name, path)
    for place, bar in enumerate(bars):
        if any(part is not None for part in bar.parts):
            whole = RECT.format("place", place * STEP, 0.0, STEP, HEIGHT)
            drawn += GROUP.format(_say(bar, classes), whole)
    return _frame(len(bars), label, drawn)


def _trace(parts: Sequence[float | None], most: float) -> Iterator[str]:
    """Yield the steps of a path. A point that stands alone is a line to itself: a dot."""
    before = None
    for place, part in enumerate(parts):
        if part is not None:
            at = f"{place * STEP + WIDTH / 2:g} {HEIGHT * (1 - part / most):.1f}"
            yield f"M{at}L{at}" if before is None else f"L{at}"
        before = part


def _frame(places: int, label: str, drawn: Markup) -> Markup:
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, max(1.0, places * STEP), HEIGHT, drawn)


def _say(bar: Bar, classes: Sequence[str]) -> str:
    parts = (f"{part:,g} {name}" for part, name in zip(bar.parts, classes, strict=True) if part)
    return f"{bar.label}: {', '.join(parts)}"
