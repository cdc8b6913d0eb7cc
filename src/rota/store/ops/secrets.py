"""Sealed values wherever they are stored: read and written in portions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.store.driver import Operation, Query

SEALED_PLACES = ("job", "job_history", "schedule", "batch", "package")
"""The tables with sealed values; `package`: tables of packages with a column `sealed`."""


class SealedRow(NamedTuple):
    ref: str
    """The id of the row, the name of a schedule, or a package's table."""
    at: int
    """Where the next portion begins after it."""
    document: str | None
    """Its payload, as JSON text; of a batch, all that follows it. None: nothing is sealed in it."""


def read_sealed(place: str, after: int, limit: int) -> Operation[list[SealedRow]]:
    """Read a portion of a table: rows with something sealed, and the last row; empty: the end."""
    if place == "package":
        rows = [] if after else (yield Query("package_sealed"))
        return [SealedRow(table, at, document) for at, (table, document) in enumerate(rows, 1)]
    params = {"place": place, "after": after, "limit": limit}
    return [SealedRow(*row) for row in (yield Query("secrets_read", params))]


def write_sealed(place: str, rows: Sequence[tuple[str, str, str]]) -> Operation[int]:
    """Write rows of (ref, old document, new document) if the old one stands; return how many."""
    by_table = [(row[0], [row]) for row in rows] if place == "package" else [(place, [*rows])]
    count = 0
    for table, some in by_table:
        refs, olds, news = map(list, zip(*some, strict=True))
        params = {"place": table, "refs": refs, "olds": olds, "news": news}
        [(written,)] = yield Query("sealed_write", params)
        count += written
    return count
