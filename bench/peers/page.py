"""The page of a run: one file of HTML that needs no other, with bars as SVG, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from bench.figures import readable
from bench.peers.result import by_table
from scripts.svg import FONT, PALETTE, Picture

OWN = "Rota"
ROW = 26.0
LABEL = 330.0
BAR = 230.0
BESIDE_DRAIN = ("backlog", "old snapshot")
"""Scenarios whose bars have the drain of the same setup below them."""
WIDTH = 760.0
CSS = """
:root{%(light)s}
@media (prefers-color-scheme: dark){:root{%(dark)s}}
body{font:16px/1.5 %(font)s;color:var(--ink);background:var(--page);max-width:780px;
  margin:2rem auto;padding:0 1rem}
h2{margin-top:3rem;border-bottom:1px solid var(--edge)}
table{border-collapse:collapse;font-size:.9rem;width:100%%}
td,th{border-bottom:1px solid var(--edge);padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}
.own td:first-child{font-weight:600;color:var(--work)}
.dim{color:var(--dim)} .bad{color:var(--bad);font-weight:600}
svg{max-width:100%%;height:auto} details{margin:.5rem 0 1.5rem}
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
        race = [one for one in figures if one["system"] != OWN or one["is_lead"]]
        own = next((one for one in race if one["system"] == OWN), None)
        first = race[0] if race else None
        if own is None or first is None or own is first or not own["better"]:
            continue
        if first["value"] in (None, own["value"]):
            continue
        rows.append([f"{scenario}: {what}", _who(first), _value(first), _value(own)])
    return rows


def _systems(document: dict[str, Any]) -> Iterator[str]:
    rows = []
    for system in document["systems"]:
        setups = "<br>".join(
            f"<b>{escape(one['name'])}</b>: {escape(one['about'])}; history: "
            f"{escape(one['history'])}"
            for one in system["setups"]
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
            beside = {_who(one): one["value"] for one in drained if one["value"]}
            if figures[0]["better"]:
                yield draw(what, figures, at, beside)
            rows = [
                [_who(one), _value(one), one["history"], _spread(one), _note(one, beside)]
                for one in figures
            ]
            head = ["system, setup", "median", "history", "rounds", "note"]
            own = {at for at, one in enumerate(figures) if one["system"].startswith(OWN)}
            table = _table(head, rows, own=own)
            yield f"<details><summary>as a table</summary>{table}</details>"


def draw(what: str, figures: list[dict[str, Any]], number: int, beside: dict[str, float]) -> str:
    """Return bars, the best first, as an element of the page; below each a thin one for what it is
    beside."""
    unit, better = figures[0]["unit"], figures[0]["better"]
    below = {_who(one): beside[_who(one)] for one in figures if _who(one) in beside}
    shown = [one["value"] for one in figures if one["value"] is not None]
    most = max([*shown, *below.values()], default=0) or 1
    words = ". ".join(f"{_who(one)}: {_value(one)}" for one in figures)
    about = f"{what}, in {unit}, {better} is better. {words}"
    picture = Picture(what, about, height=ROW * len(figures) + 20, width=WIDTH)
    y = 10 + ROW / 2
    for one in figures:
        kind = "work" if one["system"].startswith(OWN) else "plain"
        picture.label(LABEL, y, _short(_who(one)), kind, anchor="end", bold=kind == "work")
        long = 0.0 if one["value"] is None else BAR * one["value"] / most
        picture.bar(LABEL + 8, y - 8, max(long, 1), 16, kind)
        picture.label(LABEL + 16 + long, y, _value(one))
        if _who(one) in below:
            picture.bar(LABEL + 8, y + 9, max(BAR * below[_who(one)] / most, 1), 4, "dim")
        y += ROW
    return _inline(picture.text(), number)


def _inline(svg: str, number: int) -> str:
    """Return the picture for this page: its colours are the page's, its identifiers its own."""
    svg = re.sub(r":root\{[^}]*\}\n@media [^\n]*\n", "", svg)
    return re.sub(r'(id|aria-labelledby)="(title|about)( about)?"',
                 lambda found: f'{found[1]}="{found[2]}-{number}'
                 + (f' about-{number}"' if found[3] else '"'), svg)  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= 42 else name[:41] + "…"


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
    top = "".join(f"<th>{one}</th>" for one in head)
    lines = []
    for at, row in enumerate(rows):
        cells = "".join(f"<td>{one if is_html else escape(one)}</td>" for one in row)
        mark = ' class="own"' if at in {*own} else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    return f"<table><tr>{top}</tr>\n" + "\n".join(lines) + "</table>"
