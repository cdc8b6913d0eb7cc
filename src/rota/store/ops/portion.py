"""A portion of rows that maintenance takes, around refused rows."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from rota.store import isolate
from rota.store.driver import Operation, Query, Row
from rota.store.errors import RowLocked, RowRefused
from rota.store.isolate import Refusals
from rota.store.ops.partitions import retry_with_partitions


def take_portion(
    statement: str,
    params: dict[str, Any],
    candidates: Query,
) -> Operation[tuple[list[Row], Refusals]]:
    """Run a statement that takes what it finds; if a row may be at fault, isolate that row.

    `candidates` finds the ids of what the statement would take. Return the rows of all runs, first
    the row of a run that takes nothing, and the refusals.
    """

    def take(only: Sequence[int] | None) -> Operation[list[Row]]:
        return retry_with_partitions(lambda: _run(Query(statement, {**params, "only": only})))

    try:
        return (yield from take(None)), {}
    except (RowRefused, RowLocked) as error:
        tried = error
    ids = [row[0] for row in (yield candidates)]
    rows = yield from take([])
    # Not all of them again: if that takes too long, no time would be left.
    waits_until = monotonic() + isolate.WAIT_S
    isolated = yield from isolate.isolate(ids, take, tried=tried, waits_until=waits_until)
    return [*rows, *(row for some in isolated.answers for row in some)], dict(isolated.refused)


def _run(query: Query) -> Operation[list[Row]]:
    return (yield query)
