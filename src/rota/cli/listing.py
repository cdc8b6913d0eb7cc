"""Lists of commands: each is declared once, for its table and for `--json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import typer
from rich.text import Text

from rota.cli.output import Times, columns_wide, print_json, print_lines, print_text, show_cell
from rota.cli.table import Column, Kind, lay_out
from rota.cli.target import Viewer
from rota.client.base import LIST_MAX
from rota.client.session import Session
from rota.model.bounds import COUNT_MAX
from rota.model.units import show_count, words

Value = str | Callable[[Any, Times], Any]
"""The value of a column: the name of a field, or a function of the row and the times."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a list: title, value, and kind of values."""

    title: str
    value: Value = ""
    """Defaults to the field with the title's name."""
    kind: Kind = Kind.PLAIN
    is_spare: bool = False
    """Whether a narrow screen leaves the column out."""

    def read(self, row: Any, times: Times) -> Any:
        if callable(self.value):
            return self.value(row, times)
        name = self.value or self.title.replace(" ", "_")
        return row[name] if isinstance(row, dict) else getattr(row, name)


number = partial(Field, kind=Kind.NUMBER)
label = partial(Field, kind=Kind.NAME)


def spare(field: Field | str) -> Field:
    return replace(Field(field) if isinstance(field, str) else field, is_spare=True)


def count(title: str, field: str = "", most: int = COUNT_MAX) -> Field:
    """A column of counts up to `most`."""
    read = Field(title, field).read
    return number(title, lambda row, times: show_count(read(row, times), most))


def span(title: str, field: str) -> Field:
    """A column of durations in seconds, some of them None."""
    read = Field(title, field).read

    def show(row: Any, times: Times) -> str | None:
        found_s = read(row, times)
        return None if found_s is None else words(found_s)

    return Field(title, show)


_SINCE = {"failed": "retries ", "queued": "due ", "running": "began "}
"""The meaning of a job's time, by status; for other statuses the time when the status began."""


def show_status(status: str, at: datetime | None, times: Times) -> str:
    """Format a job's status with its most useful time: "failed, retries in 59 min"."""
    said = _SINCE.get(status, "")
    if at is None or status == "waiting":
        return "failed, retries later" if status == "failed" else status
    if status == "failed" and at <= times.now:
        return "failed, retries now"
    return f"{status}, {said}{times.show(at)}"


def show_error(row: Any) -> str | None:
    return row.last_error if row.error_type is None else f"{row.error_type}: {row.last_error}"


def add_one(limit: int) -> int:
    """Return the number of rows to read: one more shows that there is a next page."""
    return min(limit + 1, LIST_MAX)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list: its name in JSON, its columns, and the text for an empty list."""

    name: str
    fields: Sequence[Field | str]
    """A text is a plain column with the field of this name."""
    empty: str = "none"
    page: tuple[str, str] | None = None
    """The option of the next page, and the field with its value."""

    def show(
        self,
        viewer: Viewer,
        find: Callable[[Session], Sequence[Any]],
        *,
        empty: str | None = None,
        limit: int | None = None,
        **facts: Any,
    ) -> None:
        """Find the rows and print them.

        Args:
            empty: the text for no rows. Defaults to the list's own text.
            limit: rows on a page, if there may be a next page: `find` reads `add_one(limit)`.
            facts: what JSON has beside the rows.
        """
        with viewer.session() as opened:
            found = find(opened)
            times = viewer.read_times(opened)
        has_more = limit is not None and len(found) > min(limit, LIST_MAX - 1)
        found = found[:limit]
        if viewer.as_json:
            print_json({self.name: found, **facts})
            return
        self.print(found, times, empty=empty)
        if self.page is not None and has_more:
            option, field = self.page
            typer.echo(f"next page: {option} {getattr(found[-1], field)!r}", err=True)

    def print(
        self, found: Sequence[Any], times: Times | None = None, *, empty: str | None = None
    ) -> None:
        """Print rows. `times`: how instants are shown; None: as local times."""
        if found:
            print_lines(self.lay_out(found, times, columns_wide()))
        else:
            print_text(self.empty if empty is None else empty)

    def lay_out(
        self,
        found: Sequence[Any],
        times: Times | None,
        width: int | None,
        *,
        one_line: bool = False,
    ) -> list[Text]:
        shown = [Field(field) if isinstance(field, str) else field for field in self.fields]
        columns = [Column(field.title, field.kind, field.is_spare) for field in shown]
        now = times or Times(datetime.now(UTC))
        cells = [[show_cell(field.read(row, now), times) for field in shown] for row in found]
        return lay_out(columns, cells, width, one_line=one_line)
