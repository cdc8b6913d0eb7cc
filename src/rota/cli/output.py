"""How results are printed: tables to read, JSON to process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rota.model.job import Job
from rota.model.units import words

PIPE_COLUMNS = 10_000
"""Into a pipe nothing is wrapped: a line is a row."""


def json_line(value: Any) -> str:
    """JSON on one line; instants as ISO 8601 in UTC, durations as seconds, and every field of a record, also one that is empty."""
    return msgspec.json.encode(_convert(value)).decode()


def _convert(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC)
        case timedelta():
            return value.total_seconds()
        case msgspec.Struct():
            return {name: _convert(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return {name: _convert(one) for name, one in value.items()}
        case list() | tuple():
            return [_convert(one) for one in value]
        case _:
            return value


def print_json(value: Any) -> None:
    """Print a result for a program."""
    typer.echo(json_line(value))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print rows under their columns, or a line when there are none."""
    listed = list(rows)
    if not listed:
        typer.echo(empty)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in listed:
        table.add_row(
            *(Text(cell(value).plain.replace("\n", " ")) for value in row)
        )  # a line that begins within a cell looks like a row
    console().print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print names with their values, one a line; those without a value are left out."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        if value is not None:
            grid.add_row(Text(name, style="bold"), cell(value))
    console().print(grid)


def console() -> Console:
    """The console of stdout."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)


def cell(value: Any) -> Text:
    """A value to read. Text comes from anybody who may insert a row: what would move the cursor or colour the screen is replaced."""
    text = _show(value)
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


def job_facts(job: Job) -> dict[str, Any]:
    """A job with its columns' names; what is stored as JSON as the values that they are."""
    facts = msgspec.structs.asdict(job)
    for name in ("payload", "meta", "progress", "result", "resolution"):
        text = facts.pop(f"{name}_json")
        facts[name] = None if text is None else msgspec.Raw(text.encode())
    for name in ("progress", "resolution"):  # Rota's own, with an instant in them
        if facts[name] is not None:
            facts[name] = _read_instant(msgspec.json.decode(facts[name]))
    return facts


def _read_instant(value: Any) -> Any:
    try:
        return value | {"at": datetime.fromisoformat(value["at"])}
    except (TypeError, KeyError, ValueError):  # somebody else wrote it
        return value
