"""Lays tables out: which columns are shown, how wide they are, and what is shortened. Pure.

The kind of a column decides how its values give way. A column without values is left out, and so is
a spare column without room. What still does not fit goes to its own line below the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text

GAP = 2
"""Columns between two values, and at the beginning of a line that continues a row."""
SHRINK_TO = 24
"""Least width of a shortened error or text."""
NAME_TO = 16
"""Least width of a shortened name: less no longer tells two workers of a host apart."""
_WORD = re.compile(r"\s*(?:[\d.]+ (?=(?:ms|s|min|h|d)\b))?\S+")
"""A word, or a number with its unit, and the spaces before it."""


class Kind(Enum):
    """The kind of a column's values, which decides how they give way."""

    PLAIN = "never cut: ids, times, statuses"
    NUMBER = "never cut, and flush right"
    NAME = "shortened in the middle: queues, workers, keys"
    TYPE = "the same, if nothing else can give way: job types, breakers"
    ERROR = "shortened: at its end, an error's class before its message"
    TEXT = "broken into several lines; nothing is lost"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title and the kind of its values."""

    title: str
    kind: Kind = Kind.PLAIN
    spare: bool = False
    """Whether a narrow screen leaves the column out; the last spare column first."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column with values, its needed width and its least width."""

    column: Column
    values: list[str]
    natural: int
    least: int


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    one_line: bool = False,
) -> list[Text]:
    """Make the lines of a table, the titles first.

    Args:
        rows: the values of each row, one for each column, without line breaks.
        width: the width of the screen, in columns. None: no line is broken, nothing is shortened.
        one_line: a row has one line. Columns that do not fit are left out, the last column first.
    """
    shown = [
        _measure(column, [row[at] for row in rows])
        for at, column in enumerate(columns)
        if any(row[at] for row in rows)
    ]
    groups = [shown] if width is None else _fold(_leave_out(shown, width), width)
    if one_line:
        groups = groups[:1]
    widths = [
        _share_width(group, None if width is None else width - GAP * (number > 0))
        for number, group in enumerate(groups)
    ]
    lines = [Text(line, style="bold") for line in _lines(groups, widths, None)]
    for row in range(len(rows)):
        lines += map(Text, _lines(groups, widths, row))
    return lines


def _measure(column: Column, values: list[str]) -> _Shown:
    title = cell_len(column.title)
    natural = max(title, *map(cell_len, values))
    match column.kind:
        case Kind.NAME | Kind.TYPE:
            least = NAME_TO
        case Kind.ERROR | Kind.TEXT:
            least = SHRINK_TO
        case _:
            least = natural
    return _Shown(column, values, natural, min(natural, max(title, least)))


def _leave_out(shown: list[_Shown], width: int) -> list[_Shown]:
    """Leave out spare columns, the last first, until the others fit, with the types whole."""
    kept = list(shown)
    for block in reversed(shown):
        needed = [
            (other.natural if other.column.kind is Kind.TYPE else other.least) + GAP
            for other in kept
        ]
        if sum(needed) - GAP <= width:
            break
        if block.column.spare:
            kept.remove(block)
    return kept


def _fold(shown: list[_Shown], width: int) -> list[list[_Shown]]:
    """Distribute the columns in their order over as few lines as their least widths need."""
    groups: list[list[_Shown]] = [[]]
    left = width
    for block in shown:
        needed = block.least + GAP * bool(groups[-1])
        if groups[-1] and needed > left:
            groups.append([])
            left, needed = width - GAP, block.least
        groups[-1].append(block)
        left -= needed
    return groups


def _share_width(group: list[_Shown], room: int | None) -> list[int]:
    """Return the widths of a line's columns. The widest shrinks first, a type last."""
    widths = [block.natural for block in group]
    over = 0 if room is None else sum(widths) + GAP * (len(widths) - 1) - room
    while over > 0 and (wider := [at for at in range(len(group)) if widths[at] > group[at].least]):
        widths[max(wider, key=lambda at: (group[at].column.kind is not Kind.TYPE, widths[at]))] -= 1
        over -= 1
    return widths


def _lines(groups: list[list[_Shown]], widths: list[list[int]], row: int | None) -> list[str]:
    """Make the lines of one row; None: of the titles."""
    made: list[str] = []
    for group, wide in zip(groups, widths, strict=True):
        margin = " " * GAP if group is not groups[0] else ""
        cells = [
            _fit(block.column.title if row is None else block.values[row], block.column.kind, each)
            for block, each in zip(group, wide, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                _pad(part, each, is_right=block.column.kind is Kind.NUMBER)
                for part, each, block in zip(parts, wide, group, strict=True)
            ]
            made.append((margin + (" " * GAP).join(padded)).rstrip())
    return [line for line in made if line]


def _fit(value: str, kind: Kind, width: int) -> list[str]:
    """Return a value as lines of this width, in the way of its kind."""
    if cell_len(value) <= width:
        return [value]
    match kind:
        case Kind.NAME | Kind.TYPE:
            return [shorten_middle(value, width)]
        case Kind.ERROR:
            return [shorten_error(value, width)]
        case Kind.TEXT:
            return wrap(value, width, breaks_words=True)
    return [value]


def _pad(text: str, width: int, *, is_right: bool) -> str:
    room = " " * max(0, width - cell_len(text))
    return room + text if is_right else text + room


def wrap(text: str, width: int, *, breaks_words: bool = False) -> list[str]:
    """Break a text at spaces. A word wider than a line gets its own line, or is broken."""
    lines, line = [], ""
    for word in _WORD.findall(text):
        if line and cell_len(line + word) > width:
            lines.append(line)
            line = word.lstrip()
        else:
            line += word
        while breaks_words and cell_len(line) > width:
            lines.append(_take(line, width))
            line = line[len(lines[-1]) :]
    return [*lines, line]


def shorten_error(text: str, width: int) -> str:
    """Shorten an error: first the module of its class, then the class if it would take half of the
    width, so that the message shows why."""
    kind, colon, message = text.partition(": ")
    if cell_len(text) > width and colon and " " not in kind:
        name = kind.rpartition(".")[2]
        text = message if cell_len(name) > width // 2 else f"{name}: {message}"
    return shorten_end(text, width)


def shorten_end(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    kept = _take(text, width - 1)
    space = kept.rfind(" ")
    if not text[len(kept)].isspace() and cell_len(kept[: max(space, 0)]) >= width // 2:
        kept = kept[:space]
    return f"{kept.rstrip(' :;,')}…"


def shorten_middle(text: str, width: int) -> str:
    """Shorten a name in its middle: the ends tell names apart."""
    if cell_len(text) <= width:
        return text
    end = _take(text[::-1], (width - 1) // 2)[::-1]
    return f"{_take(text, width - 1 - cell_len(end))}…{end}"


def _take(text: str, width: int) -> str:
    """Return the beginning that fits: a letter may be two columns wide, or none."""
    used = 0
    for at, sign in enumerate(text):
        used += cell_len(sign)
        if used > width:
            return text[:at]
    return text
