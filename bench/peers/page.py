"""The page of a run: one file of HTML that needs no other, with bars as SVG, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from bench.figures import readable
from bench.peers.result import by_table
from bench.place import describe
from scripts.svg import FONT, PALETTE, SMALL, Kind, Picture, measure

OWN = "Rota"
ROW = 26.0
LABEL = 330.0
BAR = 230.0
BESIDE_DRAIN = ("backlog", "old snapshot")
"""Scenarios whose bars have the drain of the same setup below them."""
WIDTH = 760.0
NARROW_WIDTH = 380.0
NARROW_ROW = 42.0
"""On a telephone a label stands above its bar: beside it, it would be too small to read."""
CSS = """
:root{%(light)s}
@media (prefers-color-scheme: dark){:root{%(dark)s}}
body{font:16px/1.5 %(font)s;color:var(--ink);background:var(--page);max-width:60rem;
  margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}
p{max-width:44rem}
h2{margin-top:3rem;border-bottom:1px solid var(--edge)}
table{border-collapse:collapse;font-size:.9rem;width:100%%}
td,th{border-bottom:1px solid var(--edge);padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}
.own td:first-child{font-weight:600;color:var(--work)}
.dim{color:var(--dim)} .bad{color:var(--bad);font-weight:600}
svg{max-width:100%%;height:auto} details{margin:.5rem 0 1.5rem} .narrow{display:none}
@media (max-width:640px){
  .wide{display:none} .narrow{display:block}
  table,tbody{display:block}
  tr{display:block;border-bottom:1px solid var(--edge);padding:.4rem 0}
  td{display:block;border:0;padding:.1rem 0;overflow-wrap:anywhere}
  tr:first-child,td:empty{display:none}
  td:not(:first-child)::before{content:attr(data-head) ": ";color:var(--dim)}
}
"""


def write(document: dict[str, Any]) -> str:
    """Return the page."""
    tables = by_table(document["figures"])
    parts = [
        "<h1>Rota beside other queues</h1>",
        *_introduce(document),
        "<h2>Where another system is ahead</h2>",
        *_losses(tables),
        "<h2>The systems</h2>",
        *_systems(document),
        *_scenarios(document, tables),
    ]
    style = CSS % {
        "light": ";".join(f"--{name}:{light}" for name, (light, _) in PALETTE.items()),
        "dark": ";".join(f"--{name}:{dark}" for name, (_, dark) in PALETTE.items()),
        "font": FONT,
    }
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Rota beside other queues</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _introduce(document: dict[str, Any]) -> Iterator[str]:
    server = document["server"]["version"].split(",")[0].split(" on ")[0]
    yield (
        f"<p>{document['at'][:10]}, {server} with its default, durable settings, "
        f"{escape(describe(document))}, "
        f"{document['cores']} cores shared by the server and all workers, one worker process of "
        "each system. Each system has its turn in each round, in a fresh database; a figure is the "
        "median of its rounds. Compare figures only within this run.</p>"
    )
    kind = "dim" if document["is_comparable"] else "bad"
    yield f'<p class="{kind}">The machine before the run: {escape(document["load"])}.</p>'
    for name, why in document["skipped"].items():
        yield f'<p class="bad">SKIPPED: {escape(name)}: {escape(why)}</p>'
    for why in document["failed"]:
        yield f'<p class="bad">FAILED: {escape(why[:300])}</p>'


def _losses(tables: dict[tuple[str, str], list[dict[str, Any]]]) -> Iterator[str]:
    rows = find_losses(tables)
    if not rows:
        yield "<p>In none of the questions of this run.</p>"
        return
    yield _table(["what", "first", "it", OWN], rows)


def find_losses(tables: dict[tuple[str, str], list[dict[str, Any]]]) -> list[list[str]]:
    """Return what a peer in any setup is better at than Rota one at a time, with its history kept:
    the question, who is first, its figure and Rota's."""
    rows = []
    for (scenario, what), figures in tables.items():
        own = next(
            (figure for figure in figures if figure["system"] == OWN and figure["is_lead"]), None
        )
        race = [
            figure for figure in figures if figure is own or not figure["system"].startswith(OWN)
        ]
        first = race[0] if race else None
        if own is None or first is None or own is first or not own["better"]:
            continue
        if first["value"] is None or _value(first) == _value(own):
            continue
        rows.append([f"{scenario}: {what}", _who(first), _value(first), _value(own)])
    return rows


def _systems(document: dict[str, Any]) -> Iterator[str]:
    rows = []
    for system in document["systems"]:
        setups = "<br>".join(
            f"<b>{escape(setup['name'])}</b>: {escape(setup['about'])}; history: "
            f"{escape(setup['history'])}"
            for setup in system["setups"]
        )
        name = f"{escape(system['name'])} {escape(system['version'])}<br>"
        rows.append([
            f'{name}<span class="dim">{escape(system["runtime"])}</span>',
            setups,
            escape(system["durable"]),
            f"{escape(system['recovery'])}; by default: {escape(system['default_recovery'])}",
        ])  # fmt: skip
    head = ["system", "setups", "durable", "a crash is noticed"]
    yield _table(head, rows, is_html=True)


def _scenarios(
    document: dict[str, Any], tables: dict[tuple[str, str], list[dict[str, Any]]]
) -> Iterator[str]:
    for name, about in document["scenarios"].items():
        yield f"<h2>{escape(name)}</h2>"
        yield "".join(f"<p>{escape(text)}</p>" for text in about.split("\n\n"))
        for at, ((scenario, what), figures) in enumerate(tables.items()):
            if scenario != name:
                continue
            yield f"<h3>{escape(what)}</h3>"
            drained = tables.get(("drain", what), []) if name in BESIDE_DRAIN else []
            beside = {_who(figure): figure["value"] for figure in drained if figure["value"]}
            if figures[0]["better"]:
                yield f'<div class="wide">{draw(what, figures, f"{at}-wide", beside)}</div>'
                narrow = draw(what, figures, f"{at}-narrow", beside, is_narrow=True)
                yield f'<div class="narrow">{narrow}</div>'
            rows = [
                [
                    _who(figure),
                    _value(figure),
                    figure["history"],
                    _spread(figure),
                    _note(figure, beside),
                ]
                for figure in figures
            ]
            head = ["system, setup", "median", "history", "rounds", "note"]
            own = {at for at, figure in enumerate(figures) if figure["system"].startswith(OWN)}
            table = _table(head, rows, own=own)
            yield f"<details><summary>as a table</summary>{table}</details>"


def draw(
    what: str,
    figures: list[dict[str, Any]],
    mark: str,
    beside: dict[str, float],
    *,
    is_narrow: bool = False,
) -> str:
    """Return bars, the best first, as an element of the page; below each a thin one for what it is
    beside. `mark` keeps the identifiers of pictures apart."""
    unit, better = figures[0]["unit"], figures[0]["better"]
    below = {_who(figure): beside[_who(figure)] for figure in figures if _who(figure) in beside}
    shown = [figure["value"] for figure in figures if figure["value"] is not None]
    most = max([*shown, *below.values()], default=0) or 1
    words = ". ".join(f"{_who(figure)}: {_value(figure)}" for figure in figures)
    about = f"{what}, in {unit}, {better} is better. {words}"
    row, width = (NARROW_ROW, NARROW_WIDTH) if is_narrow else (ROW, WIDTH)
    picture = Picture(what, about, height=row * len(figures) + 20, width=width)
    draw_row = _draw_narrow_row if is_narrow else _draw_row
    for at, figure in enumerate(figures):
        share = 0.0 if figure["value"] is None else figure["value"] / most
        other = below[_who(figure)] / most if _who(figure) in below else None
        draw_row(picture, 10 + row * at, figure, share, other)
    return _inline(picture.text(), mark)


def _draw_row(
    picture: Picture, top: float, figure: dict[str, Any], share: float, below: float | None
) -> None:
    kind, y = _kind(figure), top + ROW / 2
    picture.label(
        LABEL,
        y,
        _fit(_who(figure), LABEL, bold=kind == "work"),
        kind,
        anchor="end",
        bold=kind == "work",
    )
    picture.bar(LABEL + 8, y - 8, max(BAR * share, 1), 16, kind)
    picture.label(LABEL + 16 + BAR * share, y, _value(figure))
    if below is not None:
        picture.bar(LABEL + 8, y + 9, max(BAR * below, 1), 4, "dim")


def _draw_narrow_row(
    picture: Picture, top: float, figure: dict[str, Any], share: float, below: float | None
) -> None:
    kind, long = _kind(figure), NARROW_WIDTH - 16
    value = _value(figure)
    room = long - measure(value, SMALL) - 8
    who = _fit(_who(figure), room, bold=kind == "work")
    picture.label(8, top + 10, who, kind, bold=kind == "work")
    picture.label(NARROW_WIDTH - 8, top + 10, value, anchor="end")
    picture.bar(8, top + 21, max(long * share, 1), 11, kind)
    if below is not None:
        picture.bar(8, top + 33, max(long * below, 1), 4, "dim")


def _kind(figure: dict[str, Any]) -> Kind:
    return "work" if figure["system"].startswith(OWN) else "plain"


def _inline(svg: str, mark: str) -> str:
    """Return the picture for this page: its colours are the page's, its identifiers its own."""
    svg = re.sub(r":root\{[^}]*\}\n@media [^\n]*\n", "", svg)
    return re.sub(r'(id|aria-labelledby)="(title|about)( about)?"',
                 lambda found: f'{found[1]}="{found[2]}-{mark}'
                 + (f' about-{mark}"' if found[3] else '"'), svg)  # fmt: skip


def _fit(text: str, room: float, *, bold: bool) -> str:
    """Return as much of a text as fits."""
    if measure(text, SMALL, bold=bold) <= room:
        return text
    while text and measure(f"{text}…", SMALL, bold=bold) > room:
        text = text[:-1]
    return f"{text}…"


def _who(figure: dict[str, Any]) -> str:
    return f"{figure['system']}, {figure['setup']}"


def _value(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "none"
    return f"{readable(figure['value'])} {figure['unit']}".strip()


def _note(figure: dict[str, Any], beside: dict[str, float]) -> str:
    drained = beside.get(_who(figure))
    if not drained or figure["value"] is None:
        return str(figure["note"])
    return f"{readable(100 * figure['value'] / drained)} % of the drain; {figure['note']}"


def _spread(figure: dict[str, Any]) -> str:
    values = figure["values"]
    if len(values) < 2:
        return str(len(values))
    return f"{len(values)}: {readable(min(values))} … {readable(max(values))}"


def _table(
    head: Iterable[str], rows: list[list[str]], own: Iterable[int] = (), *, is_html: bool = False
) -> str:
    names = [*head]
    top = "".join(f"<th>{name}</th>" for name in names)
    lines = []
    for at, row in enumerate(rows):
        cells = "".join(
            f'<td data-head="{name}">{cell if is_html else escape(cell)}</td>'
            for name, cell in zip(names, row, strict=True)
        )
        mark = ' class="own"' if at in {*own} else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    return f"<table><tr>{top}</tr>\n" + "\n".join(lines) + "</table>"
