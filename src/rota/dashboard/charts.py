"""Charts: drawn by the server, with a table behind each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

HEIGHT = 100.0
STEP = 10.0
WIDTH = 8.0
RECT = Markup('<rect class="{}" x="{:g}" y="{:.1f}" width="{:g}" height="{:.1f}"/>')


class Bar(NamedTuple):
    label: str
    parts: Sequence[float]
    """From the bottom to the top."""


def draw(bars: Sequence[Bar], classes: Sequence[str], label: str) -> Markup:
    """Draw bars of parts that stand on each other; a part that is not empty can be seen. `classes`
    style the parts; `label` says what the chart shows, for people who do not see it."""
    most = max((sum(bar.parts) for bar in bars), default=0.0)
    drawn = Markup()
    for place, bar in enumerate(bars):
        top = HEIGHT
        rects = Markup()
        for part, name in zip(bar.parts, classes, strict=True):
            if part:
                height = max(2.0, HEIGHT * part / most)
                top -= height
                rects += RECT.format(name, place * STEP, max(top, 0.0), WIDTH, height)
        if rects:
            drawn += Markup("<g><title>{}</title>{}</g>").format(_say(bar, classes), rects)
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(label, max(1.0, len(bars) * STEP), HEIGHT, drawn)


def _say(bar: Bar, classes: Sequence[str]) -> str:
    parts = (f"{part:,g} {name}" for part, name in zip(bar.parts, classes, strict=True) if part)
    return f"{bar.label}: {', '.join(parts)}"
