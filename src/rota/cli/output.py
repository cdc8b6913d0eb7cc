"""Prints results: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rota.model.record import convert
from rota.model.units import words

DELETE = "\x7f"
PIPE_COLUMNS = 10_000
"""Width of a table in a pipe: no row is wrapped."""
FACT_MAX = 65_536
"""Most characters of a value that is shown: a payload of the usual limit is shown whole."""
LINES_MAX = 1_000
"""Most lines of it: each is filled up to the longest."""
CELL_MAX = 2_000
"""Most characters in a cell of a table: there may be a thousand rows."""


def join_lines(text: str) -> str:
    """Return a docstring with one line per paragraph: the terminal breaks lines by its width."""
    return "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))


def json_line(value: Any) -> str:
    """Make JSON on one line: instants in ISO 8601 and UTC, durations in seconds, all fields.

    A character that would move a cursor, colour a screen or reorder a line is escaped: JSON allows
    most of them as they are, and people read it on terminals.
    """
    text = msgspec.json.encode(convert(value, _keep_json)).decode()
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign < DELETE else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    # `json` takes DEL for a character like any other.
    return "\\u007f" if sign == DELETE else json.dumps(sign)[1:-1]


def _keep_json(text: str) -> msgspec.Raw:
    """A column of JSON is printed as it is, whatever numbers are in it."""
    return msgspec.Raw(text.encode())


def print_json(value: Any) -> None:
    """Print a result as JSON on one line."""
    typer.echo(json_line(value))


def name_seconds(row: dict[str, Any], durations: Collection[str]) -> dict[str, Any]:
    """Return a row for JSON: names of durations, which are printed in seconds, end in _s."""
    return {f"{name}_s" if name in durations else name: value for name, value in row.items()}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print rows under their columns, or the line `empty` if there are none."""
    listed = list(rows)
    if not listed:
        typer.echo(empty)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in listed:
        # A line break within a cell would look like a new row.
        table.add_row(*(Text(cell(value, CELL_MAX).plain.replace("\n", " ")) for value in row))
    console().print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print names with their values, one pair a line. Names without a value are left out."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        if value is not None:
            grid.add_row(Text(name, style="bold"), cell(value))
    console().print(grid)


def console() -> Console:
    """Make the console of stdout."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)


def cell(value: Any, most: int = FACT_MAX) -> Text:
    """Format a value for a terminal: `most` characters, without control characters.

    Anyone who may insert a row can put control characters into it. They would move the cursor or
    colour the screen. A text without an end would keep the terminal busy for minutes.
    """
    text = _cut(_show(value), most)
    return Text(
        "".join(
            sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}"
            for sign in text
        )
    )


def _show(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone().isoformat(sep=" ", timespec="seconds")
        case timedelta():
            return words(value.total_seconds())
        case list() | tuple():
            return ", ".join(map(_show, value))
        case dict():
            return json_line(value)
        case int() if not isinstance(value, bool):
            return str(value)
        case _:
            return str(value)


def _cut(text: str, most: int) -> str:
    shown = "".join(text[:most].splitlines(keepends=True)[:LINES_MAX])
    left = len(text) - len(shown)
    return text if not left else f"{shown}… ({left:,} more characters)"
