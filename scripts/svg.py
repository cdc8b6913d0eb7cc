"""A picture as SVG text: boxes, arrows, labels, axes of time, terminals; light and dark in one.

A picture has its own background, so it reads on any page. An `<img>` follows the colour scheme of
the page around it. Text is text, in a font of the reader's system. Its width is estimated for a
wide one, and what does not fit into its box is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Point = tuple[float, float]
Kind = Literal["plain", "yours", "store", "work", "good", "wait", "bad"]
Anchor = Literal["start", "middle", "end"]

WIDTH = 520.0
"""As wide as a picture usually is. A telephone shows it at two thirds."""
SIZE, SMALL = 16.0, 14.5
"""Sizes of text. A telephone shows the small one at ten pixels."""
MONO = 13.5
LEADING = 1.3
ROW = 18.0
"""Between the lines of a terminal."""
TERMINAL_LEFT = 14.0

PALETTE: dict[str, tuple[str, str]] = {
    "page": ("#fbfcfd", "#14181f"),
    "edge": ("#d5dbe1", "#343c47"),
    "ink": ("#1c2127", "#e8ecf1"),
    "dim": ("#58626d", "#a3aebb"),
    "plain": ("#58626d", "#a3aebb"),
    "yours": ("#0b5cad", "#7cbcff"),
    "store": ("#5b4bb7", "#b6a8ff"),
    "work": ("#00707a", "#5bd0d9"),
    "good": ("#1a7038", "#6fd58e"),
    "wait": ("#8a5a00", "#f0bd54"),
    "bad": ("#b3261e", "#ff9a90"),
    "plain-fill": ("#eef1f4", "#222933"),
    "yours-fill": ("#e3effc", "#12304f"),
    "store-fill": ("#ece9fb", "#2c2653"),
    "work-fill": ("#dff3f4", "#0d3a3f"),
    "good-fill": ("#e0f4e6", "#12391f"),
    "wait-fill": ("#fbf0d9", "#42310c"),
    "bad-fill": ("#fce6e4", "#4a1d1a"),
    "screen": ("#f3f5f7", "#0c0f13"),
}
"""Each colour in the light and in the dark scheme."""
KINDS: tuple[Kind, ...] = ("plain", "yours", "store", "work", "good", "wait", "bad")
TEXTS = ("ink", "dim", "page", *KINDS)
"""The colours that text has; each must be legible on every fill that it may stand on."""

FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif'
FONT_MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'


def measure(text: str, size: float, *, mono: bool = False, bold: bool = False) -> float:
    """Estimate the width of a text, for the widest of the usual fonts (DejaVu Sans)."""
    if mono:
        return len(text) * size * 0.603
    widths = (0.36 if letter in " iIjl.,:;'|!()[]ftr" else 0.9 if letter in "mwMW@—…→%" else 0.62
              for letter in text)  # fmt: skip
    return sum(widths) * size * (1.1 if bold else 1.0)


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture: where arrows begin and end."""

    x: float
    y: float
    width: float
    height: float

    def at(self, across: float, down: float) -> Point:
        """Return a point by its share of width and height: `at(1, 0.5)` is right in the middle."""
        return self.x + across * self.width, self.y + down * self.height


@dataclass
class Picture:
    """What is drawn, in the order of drawing."""

    title: str
    about: str
    """What a person hears who does not see the picture."""
    height: float
    width: float = WIDTH
    style: str = ""
    """More rules of CSS."""
    page: str = "page"
    """The colour of the background."""
    _parts: list[str] = field(default_factory=list)

    def add(self, part: str) -> None:
        """Add an element as it is."""
        self._parts.append(part)

    def label(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "ink",
        *,
        size: float = SMALL,
        anchor: Anchor = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """Write lines of text; `y` is the middle of the first. Fails if it leaves the picture."""
        for at, line in enumerate(text.split("\n")):
            wide = measure(line, size, mono=mono, bold=bold)
            left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
            if left < 0 or left + wide > self.width:
                raise ValueError(f"{self.title!r}: {line!r} leaves the picture ({wide:.0f} wide)")
            kinds = " ".join([f"t-{kind}", *(["b"] * bold), *(["m"] * mono)])
            place = f'x="{_n(x)}" y="{_n(y + at * size * LEADING + size * 0.35)}"'
            anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
            self.add(
                f'<text class="{kinds}" {place} font-size="{_n(size)}"{anchored}>'
                f"{escape(line, quote=False)}</text>"
            )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        kind: Kind = "plain",
        *,
        small: str = "",
        dashed: bool = False,
    ) -> Box:
        """Draw a box with its text, bold, and smaller text below, both in its middle."""
        radius = min(8, width / 4, height / 4)
        self.add(
            f'<rect class="f-{kind}{" dash" * dashed}" x="{_n(x)}" y="{_n(y)}"'
            f' width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"/>'
        )
        rows = [(line, SIZE, True) for line in text.split("\n") if line]
        rows += [(line, SMALL, False) for line in small.split("\n") if line]
        tall = sum(size * LEADING for _, size, _ in rows)
        if tall > height:
            raise ValueError(f"{self.title!r}: the text of {text!r} is too high for its box")
        down = y + (height - tall) / 2
        for line, size, bold in rows:
            if measure(line, size, bold=bold) > width - 8:
                raise ValueError(f"{self.title!r}: {line!r} is too wide for its box")
            down += size * LEADING
            self.label(x + width / 2, down - size * LEADING / 2, line, kind if bold else "ink",
                       size=size, anchor="middle", bold=bold)  # fmt: skip
        return Box(x, y, width, height)

    def line(self, points: Sequence[Point], kind: str = "dim", *, dashed: bool = False) -> None:
        """Draw a line through points, with round corners."""
        self.add(f'<path class="s-{kind}{" dash" * dashed}" d="{_path(points)}"/>')

    def arrow(
        self, *points: Point, kind: str = "dim", dashed: bool = False, both: bool = False
    ) -> None:
        """Draw a line that ends in an arrow, or begins with one too."""
        heads = [(points[-2], points[-1])] + ([(points[1], points[0])] if both else [])
        shown = [*points]
        shown[-1] = _towards(points[-1], points[-2], 6)
        if both:
            shown[0] = _towards(points[0], points[1], 6)
        self.line(shown, kind, dashed=dashed)
        for tail, tip in heads:
            angle = math.atan2(tip[1] - tail[1], tip[0] - tail[0])
            corners = [
                (tip[0] - 10 * math.cos(angle + by), tip[1] - 10 * math.sin(angle + by))
                for by in (-0.42, 0.42)
            ]
            drawn = " ".join(f"{_n(x)},{_n(y)}" for x, y in (tip, *corners))
            self.add(f'<polygon class="p-{kind}" points="{drawn}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 6) -> None:
        """Draw a dot."""
        self.add(f'<circle class="p-{kind}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>')

    def cross(self, x: float, y: float, kind: str = "bad", size: float = 8) -> None:
        """Draw a cross: something ends here, or does not arrive."""
        self.add(
            f'<path class="s-{kind} thick" d="M{_n(x - size)} {_n(y - size)}l{_n(2 * size)} '
            f'{_n(2 * size)}m0 {_n(-2 * size)}l{_n(-2 * size)} {_n(2 * size)}"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a full bar."""
        self.add(
            f'<rect class="p-{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}"'
            f' height="{_n(height)}" rx="2"/>'
        )

    def badge(self, x: float, y: float, text: str, kind: str = "yours") -> None:
        """Draw a number in a dot, which a legend explains."""
        self.dot(x, y, kind, 10)
        self.label(x, y, text, "page", anchor="middle", bold=True)

    def legend(self, y: float, texts: Iterable[str], kind: str = "yours") -> None:
        """Explain the badges, one below the other; a text may have several lines."""
        for number, text in enumerate(texts, 1):
            self.badge(26, y, str(number), kind)
            self.label(46, y, text)
            y += SMALL * LEADING * text.count("\n") + 26

    def timeline(
        self, left: float, right: float, y: float, ticks: Iterable[tuple[float, str]]
    ) -> None:
        """Draw an axis of time: an arrow to the right, with marks and their texts below."""
        self.arrow((left, y), (right, y))
        for x, text in ticks:
            self.line([(x, y - 4), (x, y + 4)])
            self.label(x, y + 17, text, "dim", anchor="middle")

    def screen(
        self,
        lines: Iterable[tuple[str, str]],
        *,
        top: float = 26,
        marks: dict[int, str] | None = None,
    ) -> float:
        """Draw the text of a terminal, each line with its kind; return where it ends. `marks` are
        badges at the ends of lines."""
        y = top
        for number, (line, kind) in enumerate(lines):
            self.label(TERMINAL_LEFT, y, line, kind, size=MONO, mono=True, bold=kind != "ink")
            if marks and number in marks:
                wide = measure(line, MONO, mono=True)
                self.badge(TERMINAL_LEFT + wide + 18, y, marks[number])
            y += ROW
        return y

    def text(self) -> str:
        """Return the picture as the text of a file."""
        names = [f"{name}:{light}" for name, (light, _) in PALETTE.items()]
        dark = [f"{name}:{dark}" for name, (_, dark) in PALETTE.items()]
        size = f"{_n(self.width)} {_n(self.height)}"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{_n(self.width)}"'
            f' height="{_n(self.height)}" role="img" aria-labelledby="title about">',
            f'<title id="title">{escape(self.title, quote=False)}</title>',
            f'<desc id="about">{escape(self.about, quote=False)}</desc>',
            "<style>",
            f":root{{{';'.join(f'--{colour}' for colour in names)}}}",
            "@media (prefers-color-scheme: dark)"
            f"{{:root{{{';'.join(f'--{colour}' for colour in dark)}}}}}",
            f"text{{font-family:{FONT};white-space:pre}}.m{{font-family:{FONT_MONO}}}"
            ".b{font-weight:600}",
            "path{fill:none;stroke-width:1.8}.thick{stroke-width:3}.dash{stroke-dasharray:5 4}",
            *(f".t-{kind}{{fill:var(--{kind})}}" for kind in TEXTS),
            *(
                f".s-{kind}{{stroke:var(--{kind})}}.p-{kind}{{fill:var(--{kind})}}"
                for kind in ("edge", "dim", *KINDS)
            ),
            *(
                f".f-{kind}{{fill:var(--{kind}-fill);stroke:var(--{kind});stroke-width:1.5}}"
                for kind in KINDS
            ),
            *([self.style] if self.style else []),
            "</style>",
            f'<rect x=".5" y=".5" width="{_n(self.width - 1)}" height="{_n(self.height - 1)}"'
            f' rx="10" fill="var(--{self.page})" stroke="var(--edge)"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _towards(start: Point, end: Point, length: float) -> Point:
    far = math.dist(start, end) or 1
    share = min(1, length / far)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _path(points: Sequence[Point]) -> str:
    """Return the path through points: corners are rounded."""
    drawn = f"M{_pair(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(8, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        into, out = _towards(corner, before, radius), _towards(corner, after, radius)
        drawn += f"L{_pair(into)}Q{_pair(corner)} {_pair(out)}"
    return drawn + f"L{_pair(points[-1])}"


def _pair(point: Point) -> str:
    return f"{_n(point[0])} {_n(point[1])}"
