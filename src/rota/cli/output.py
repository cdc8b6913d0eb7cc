"""Prints results: tables and facts for people, JSON for programs.

Lines fit a terminal, or COLUMNS. In a pipe a row is one unshortened line, for `grep`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from rota.cli.table import wrap
from rota.model.record import convert
from rota.model.units import age, words

DELETE = "\x7f"
COLUMNS_MIN = 20
"""Least width of a screen: a smaller reported width is ignored."""
FACT_MAX = 65_536
"""Most characters of a shown value: a payload of the usual limit is shown whole."""
LINES_MAX = 1_000
"""Most lines of a shown value: each line is filled up to the longest."""
CELL_MAX = 2_000
"""Most characters in a cell of a table, which may have a thousand rows."""


def join_lines(text: str) -> str:
    """Return a docstring with one line per paragraph: the terminal breaks lines by its width."""
    return "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))


def read_template(name: str) -> str:
    """Return a text that is printed whole, from the package's files."""
    return (files("rota.cli") / "templates" / name).read_text(encoding="utf-8")


def json_line(value: Any) -> str:
    """Make JSON on one line: instants in ISO 8601 and UTC, durations in seconds, all fields. Signs
    that would move a cursor, colour a screen or reorder a line are escaped: people read it on
    terminals."""
    text = msgspec.json.encode(convert(value, _keep_json)).decode()
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign < DELETE else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    # `json` does not escape DEL.
    return "\\u007f" if sign == DELETE else json.dumps(sign)[1:-1]


def _keep_json(text: str) -> msgspec.Raw:
    """Keep a column of JSON as it is, whatever numbers are in it."""
    return msgspec.Raw(text.encode())


def print_json(value: Any) -> None:
    typer.echo(json_line(value))


def say(facts: Any, text: str, *, as_json: bool) -> None:
    """Print what a command did: facts for programs, or a sentence for people."""
    if as_json:
        print_json(facts)
    else:
        print_text(text)


def name_seconds(row: dict[str, Any], durations: Collection[str]) -> dict[str, Any]:
    """Return a row for JSON: names of durations, which are in seconds, end in _s."""
    return {f"{name}_s" if name in durations else name: value for name, value in row.items()}


@dataclass(frozen=True, slots=True)
class Times:
    """The form of instants: as ages, or in UTC."""

    now: datetime
    """The database's time, from which ages count."""
    utc: bool = False

    def show(self, at: datetime) -> str:
        """Format an instant as an age, such as "3 s ago"; with `utc`, as the instant."""
        return show_utc(at) if self.utc else age((self.now - at).total_seconds())

    def show_both(self, at: datetime) -> str:
        return show_utc(at) if self.utc else f"{self.show(at)} ({_show(at)})"


def show_utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def show_cell(value: Any, times: Times | None) -> str:
    """Format a value of a table, on one line. `times`: how instants are shown; None: local."""
    if times is not None and isinstance(value, datetime):
        return times.show(value)
    # A line break within a cell would look like a new row.
    return clean(value, CELL_MAX).replace("\n", " ")


def print_facts(facts: Iterable[tuple[str, Any]], times: Times | None = None) -> None:
    """Print names with their values, one pair a line, without names that have no value. A value
    that is too wide continues below, with whole words for copying."""
    shown = [
        (
            name,
            times.show_both(value)
            if times is not None and isinstance(value, datetime)
            else clean(value),
        )
        for name, value in facts
        if value is not None
    ]
    left = 2 + max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print_lines(lay_beside(Text(name.ljust(left), style="bold"), value))


def lay_beside(left: Text, text: str) -> list[Text]:
    """Make the lines of a text with `left` before the first. No word is cut."""
    lines, width = text.split("\n"), columns_wide()
    if width is not None:
        room = max(COLUMNS_MIN, width - len(left))
        lines = [part for line in lines for part in wrap(line, room)]
    margin = Text(" " * len(left))
    return [(margin if at else left) + Text(line) for at, line in enumerate(lines)]


def print_text(text: str) -> None:
    """Print a sentence, broken at spaces, without control characters."""
    text, width = clean(text), columns_wide()
    print_lines(map(Text, [text] if width is None else wrap(text, width)))


def print_lines(lines: Iterable[Text]) -> None:
    out = console()
    for line in lines:
        line.rstrip()
        out.print(line, soft_wrap=True)


def console() -> Console:
    """Make the console of stdout: without a terminal, or with NO_COLOR, no colours and no bold."""
    is_plain = bool(os.environ.get("NO_COLOR"))
    return Console(highlight=False, color_system=None if is_plain else "auto")


def columns_wide() -> int | None:
    """Return the width of a line; None: unlimited."""
    out = console()
    given = os.environ.get("COLUMNS", "")
    if not out.is_terminal and not (given.isdecimal() and int(given)):
        return None
    return max(COLUMNS_MIN, out.width)


def clean(value: Any, most: int = FACT_MAX) -> str:
    """Format a value for a terminal: `most` characters, without control characters, which anyone
    who may insert a row could use to move the cursor or colour the screen."""
    text = _cut(_show(value), most)
    return "".join(
        sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text
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
        case _:
            return str(value)


def _cut(text: str, most: int) -> str:
    shown = "".join(text[:most].splitlines(keepends=True)[:LINES_MAX])
    left = len(text) - len(shown)
    return text if not left else f"{shown}… ({left:,} more characters)"
