"""Sealed values wherever they are stored: read and written in portions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.store.driver import Operation, Query

SEALED_PLACES = ("job", "job_history", "schedule", "batch", "package")
"""The tables that have sealed values in their payloads, and those of packages with a column
`sealed`."""


class SealedRow(NamedTuple):
    """A row in which something may be sealed."""

    ref: str
    """The id; the name of a schedule; or a package's table."""
    at: int
    """Where the next portion begins after it."""
    document: str | None
    """Its payload, as JSON text; of a batch, all that follows it. None: nothing is sealed in it."""


def read_sealed(place: str, after: int, limit: int) -> Operation[list[SealedRow]]:
    """Read a portion of a table: the rows in which something is sealed, and the last one. Empty:
    the table has no more rows."""
    if place == "package":
        rows = [] if after else (yield Query("package_sealed"))
        return [SealedRow(table, at, document) for at, (table, document) in enumerate(rows, 1)]
    params = {"place": place, "after": after, "limit": limit}
    return [SealedRow(*row) for row in (yield Query("secrets_read", params))]


def write_sealed(place: str, rows: Sequence[tuple[str, str, str]]) -> Operation[int]:
    """Write rows, each as its ref, its old and its new document; return how many were written: one
    that has changed meanwhile is not."""
    if place == "package":
        count = 0
        for table, old, new in rows:
            [(written,)] = yield Query("package_seal", {"place": table, "old": old, "new": new})
            count += written
        return count
    refs, olds, news = map(list, zip(*rows, strict=True))
    params = {"place": place, "refs": refs, "olds": olds, "news": news}
    return (yield Query("secrets_write", params))[0][0]  # type: ignore[no-any-return]
