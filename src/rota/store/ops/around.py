"""How a pass over many jobs goes on around those that the database refuses."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

import psycopg

from rota.errors import PayloadError, SchemaError
from rota.store.db import Operation, Query, Row
from rota.store.ops.upkeep import ensure_partitions
from rota.store.trouble import PartitionMissing, blames_rows, first_line, is_waiting

WAITS_S = 20.0
"""So long a pass looks for those that block it, or take too long: each try may end in a timeout. Others may do the rest meanwhile."""
Refusals = dict[int, str]
"""What the database says of each job that it refuses."""
T = TypeVar("T")


def taken(statement: str, params: dict[str, Any], candidates: Query) -> Operation[tuple[list[Row], Refusals]]:
    """Run a statement that takes what it finds; where a row may be at fault, run it for the halves of its candidates, and so on, down to that row."""

    def take(only: list[int] | None) -> Operation[list[Row]]:
        query = Query(statement, {**params, "only": only})
        try:
            return (yield query)
        except PartitionMissing:
            yield from ensure_partitions()
            return (yield query)

    try:
        return (yield from take(None)), {}
    except (psycopg.Error, PayloadError, SchemaError) as error:
        if not blames_rows(error):
            raise
    ids = [row[0] for row in (yield candidates)]
    rows = yield from take([])
    refusals: Refusals = {}
    half, waits_until = len(ids) // 2, monotonic() + WAITS_S
    # Not all of them again: where that takes too long the time would be over with it, and each pass come to nothing.
    for part in (ids[:half], ids[half:]):
        more_rows, more_refusals = yield from halved(part, take, waits_until=waits_until)
        rows += more_rows
        refusals |= more_refusals
    return rows, refusals


def halved(
    ids: list[int], take: Callable[[list[int]], Operation[list[T]]], *, waits_until: float | None = None
) -> Operation[tuple[list[T], Refusals]]:
    """Do it to all of them; where a row may be at fault, to one half and to the other, and so on, down to that row. With `waits_until`, in monotonic
    seconds, also where one blocks or takes too long, for each costs its timeout: past that time jobs are no more told apart, and the first is named."""
    if not ids:
        return [], {}
    try:
        return (yield from take(ids)), {}
    except (psycopg.Error, PayloadError, SchemaError) as error:
        if not blames_rows(error) or (is_waiting(error) and waits_until is None):
            raise
        says = f"{type(error).__name__}: {first_line(error)}"
        if len(ids) == 1:
            return [], {ids[0]: says}
        if is_waiting(error) and waits_until is not None and monotonic() > waits_until:
            return [], {ids[0]: f"{says} (this one, or one of the {len(ids) - 1} after it that were left with it)"}
    half = len(ids) // 2
    rows, refusals = yield from halved(ids[:half], take, waits_until=waits_until)
    more_rows, more_refusals = yield from halved(ids[half:], take, waits_until=waits_until)
    return rows + more_rows, refusals | more_refusals
