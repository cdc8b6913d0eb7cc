"""How jobs are enqueued."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from rota.errors import KeyTaken, RotaError
from rota.model.asks import add_asks
from rota.model.job import Enqueued, Status
from rota.model.units import plural
from rota.store.driver import Operation, Query, format_numbers, format_texts

INSERT_MAX = 1_000
PAYLOADS_MAX = 1_000_000
"""Most characters of the payloads of one INSERT, unless a single payload is longer. The server
parses them together, and needs several times as much memory."""
IN_FLIGHT = 4
"""INSERTs that are sent before their answers are awaited, where the driver has a pipeline."""
KEY_TRIES = 20
"""Tries of an enqueue whose key's holder was just cancelled, or gave the key up as it started: the
latter is usual for a key that is enqueued without a pause."""


_QUEUED = Status.QUEUED.value


class CommonColumns(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What jobs of a bulk have in common: columns of `job`. Equal columns share one object: it is
    sent once, and known by its identity.

    A delay and a time to expire are seconds that the database adds to its clock. Queue and priority
    default to the type's in the database.
    """

    queue: str | None
    job_type: str
    payload_version: int | None
    priority: int | None
    run_at: datetime | None
    delay_s: float | None
    expires_s: float | None
    max_attempts: int | None
    timeout: timedelta | None
    group_capacity: int | None
    meta: str | None
    on_duplicate: str = "keep"


class NewRow(msgspec.Struct, frozen=True, gc=False):
    """A job to insert. It is in no cycle, so the garbage collector need not look at it."""

    common: CommonColumns
    payload: str
    idempotency_key: str | None = None
    group_key: str | None = None
    asks: str | None = None
    """More of its meta, as JSON text: see `AsksMaker`."""

    def columns(self) -> dict[str, Any]:
        return {
            **asdict(self.common),
            "meta": add_asks(self.common.meta, self.asks),
            "payload": self.payload,
            "idempotency_key": self.idempotency_key,
            "group_key": self.group_key,
        }

    def usual_columns(self) -> dict[str, Any] | None:
        """Return the columns of a job that is due now and asks for nothing; None: it has more."""
        common = self.common
        more = (
            common.run_at, common.delay_s, common.expires_s, common.max_attempts, common.timeout,
            common.meta, self.asks, self.group_key,
        )  # fmt: skip
        if more != _NOTHING:
            return None
        return {
            "queue": common.queue,
            "job_type": common.job_type,
            "payload": self.payload,
            "payload_version": common.payload_version,
            "priority": common.priority,
            "idempotency_key": self.idempotency_key,
        }


_NOTHING = (None,) * 8
_CHANGES = ("replace", "postpone")


def insert(row: NewRow) -> Operation[Enqueued]:
    """Insert one job with one statement, and a second statement if its key is taken."""
    usual = row.usual_columns()
    for _ in range(KEY_TRIES):
        # Each parameter costs a single INSERT a microsecond. So most jobs have a statement with
        # half of them, and a job with a lane is a bulk of one.
        if usual is not None:
            found = yield Query("job_insert_usual", usual)
            id_ = found[0][0] if found else None
        elif row.group_key is not None:
            [[[id_]]] = yield Query("jobs_insert", {**_columns([row]), "ids": None})
        else:
            found = yield Query("job_insert", row.columns())
            id_ = found[0][0] if found else None
        if id_ is not None:
            return Enqueued(id_, True, _QUEUED)
        results: dict[int, Enqueued] = {}
        yield from _meet_holders([row], [0], results)
        if results:
            _refuse_taken(row, results[0], None)
            return results[0]
    raise _key_contended(row)


def insert_many(rows: Sequence[NewRow], batch: int | None = None) -> Operation[list[Enqueued]]:
    """Insert jobs in bulk, all of one batch or of none; results are in the order of the input. Run
    it in one transaction.

    Keys are taken in sorted order over the whole call, so that two bulks with the same keys cannot
    deadlock. Ids ascend in the order of the input. If a taken key may not be joined, nothing is
    inserted, whoever ends the transaction.
    """
    may_refuse = [1 for row in rows if row.idempotency_key and row.common.on_duplicate == "raise"]
    if not may_refuse:
        return (yield from _insert_all(rows, batch))
    yield Query("savepoint", command="savepoint rota_enqueue")
    try:
        inserted = yield from _insert_all(rows, batch)
    except KeyTaken:
        yield Query("savepoint", command="rollback to savepoint rota_enqueue")
        raise
    yield Query("savepoint", command="release savepoint rota_enqueue")
    return inserted


def _insert_all(rows: Sequence[NewRow], batch: int | None) -> Operation[list[Enqueued]]:
    results: dict[int, Enqueued] = {}
    taken: set[int] = set()
    pending = list(range(len(rows)))
    for _ in range(KEY_TRIES):
        refused: list[int] = []
        ids: list[int] | None = None
        chunks = list(_split(rows, pending))
        if len(chunks) > 1 and any(rows[at].idempotency_key is not None for at in pending):
            # Keys are taken in another order than the input's.
            [[ids]] = yield Query("ids_reserve", {"count": len(rows)})
            chunks = list(_split(rows, sorted(pending, key=lambda at: _lock_order(rows[at], at))))
        for at, id_ in (yield from _insert(rows, chunks, ids, batch)):
            if id_ is None:
                refused.append(at)
            else:
                results[at] = Enqueued(id_, True, _QUEUED)
        pending = yield from _meet_holders(rows, refused, results)
        taken.update(refused)
        if not pending:
            for at in sorted(taken):
                _refuse_taken(rows[at], results[at], at)
            return [results[at] for at in range(len(rows))]
    raise _key_contended(rows[pending[0]])


def _insert(
    rows: Sequence[NewRow],
    chunks: Sequence[Sequence[int]],
    ids: list[int] | None,
    batch: int | None,
) -> Operation[list[tuple[int, int | None]]]:
    """Insert each chunk with one INSERT; return jobs' places with their ids; None: not inserted."""
    inserted: list[tuple[int, int | None]] = []
    for start in range(0, len(chunks), IN_FLIGHT):
        sent = chunks[start : start + IN_FLIGHT]
        given = (_parameters(rows, chunk, ids, batch) for chunk in sent)
        if len(sent) == 1:  # a pipeline would only cost
            found = yield Query("jobs_insert", next(given))
        else:
            found = yield Query("jobs_insert", each=given)
        for chunk, [made] in zip(sent, found, strict=True):
            inserted += zip(chunk, made, strict=True)
    return inserted


def _split(rows: Sequence[NewRow], order: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split jobs into what one INSERT takes: in this order, by number and by size."""
    sizes = [0, *accumulate(map(len, [rows[at].payload for at in order]))]
    start = 0
    while start < len(order):
        by_size = bisect_right(sizes, sizes[start] + PAYLOADS_MAX) - 1
        end = min(start + INSERT_MAX, max(start + 1, by_size))
        yield order[start:end]
        start = end


def _meet_holders(
    rows: Sequence[NewRow], refused: Sequence[int], results: dict[int, Enqueued]
) -> Operation[list[int]]:
    """Add the holders of the refused keys to the results, and change them as `on_duplicate` says;
    return the places whose keys are free."""
    keyless = sum([rows[at].idempotency_key is None for at in refused])
    if keyless:
        raise RotaError(
            f"not inserted: {keyless:,} of {plural(len(rows), 'job')}, left out by a trigger on "
            "rota.job; roll back if the transaction is yours"
        )
    # Payloads of the others are not read.
    asked = [
        row if row.common.on_duplicate == "replace" else replace(row, payload="{}")
        for row in [rows[at] for at in refused]
    ]
    chunks = list(_split(asked, range(len(asked))))
    changing = [row for row in asked if row.common.on_duplicate in _CHANGES]
    if len(chunks) > 1 and changing:
        # All at once, because chunks and ids have different orders.
        keys = [row.idempotency_key for row in changing]
        job_types = [row.common.job_type for row in changing]
        yield Query("holders_lock", {"job_types": job_types, "keys": keys})
    for chunk in chunks:
        given = [asked[place] for place in chunk]
        how = format_texts([row.common.on_duplicate for row in given])
        for place, id_, status, change in (
            yield Query("holders_meet", _columns(given) | {"how": how})
        ):
            results[refused[chunk[place - 1]]] = Enqueued(id_, False, status, change)
    return [at for at in refused if at not in results]


def _refuse_taken(row: NewRow, result: Enqueued, index: int | None) -> None:
    common = row.common
    if common.on_duplicate == "raise" and not result.created:
        assert row.idempotency_key is not None
        raise KeyTaken(result.id, common.job_type, row.idempotency_key, result.status, index)


def _lock_order(row: NewRow, at: int) -> tuple[bool, str, str, int]:
    # The order of the INSERT itself: Python too compares texts by code point, as collate "C" does.
    key = row.idempotency_key
    return (key is None, "" if key is None else row.common.job_type, key or "", at)


def _parameters(
    rows: Sequence[NewRow], chunk: Sequence[int], ids: list[int] | None, batch: int | None
) -> dict[str, Any]:
    """Return the parameters of `jobs_insert` for one of its calls."""
    reserved = None if ids is None else format_numbers([ids[at] for at in chunk])
    return {**_columns([rows[at] for at in chunk], batch), "ids": reserved}


def _columns(rows: Sequence[NewRow], batch: int | None = None) -> dict[str, Any]:
    """Return the parameters of `jobs_insert` for these jobs, without their ids."""
    places: defaultdict[tuple[CommonColumns, str | None], int]
    places = defaultdict(lambda: len(places) + 1)
    which = [places[row.common, row.asks] for row in rows]
    common = [{**asdict(columns), "batch": batch} for columns, _ in places]
    for params, (columns, asks) in zip(common, places, strict=True):
        meta = add_asks(columns.meta, asks)
        params["meta"] = None if meta is None else msgspec.Raw(meta.encode())
    return {
        "payloads": f"[{','.join([row.payload for row in rows])}]",
        "keys": _texts_or_none([row.idempotency_key for row in rows]),
        "groups": _texts_or_none([row.group_key for row in rows]),
        "which": format_numbers(which) if len(places) > 1 else None,
        "common": msgspec.json.encode(common).decode(),
    }


def _texts_or_none(texts: list[str | None]) -> str | None:
    return format_texts(texts) if texts.count(None) < len(texts) else None


def _key_contended(row: NewRow) -> RotaError:
    return RotaError(
        f"the idempotency key {row.idempotency_key!r} of job type {row.common.job_type!r} was "
        f"taken and freed {KEY_TRIES} times while this call tried to insert; roll back if the "
        "transaction is yours, and try again"
    )


def read_on_duplicate(job_type: str) -> Operation[str | None]:
    """Read what a type declares for a key that is taken; None: no such type is declared."""
    rows = yield Query("type_on_duplicate", {"name": job_type})
    return rows[0][0] if rows else None


def payload_bytes_max() -> Operation[int]:
    return (yield Query("payload_bytes_max"))[0][0]  # type: ignore[no-any-return]
