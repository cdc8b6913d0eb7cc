"""How jobs are enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.errors import RotaError
from rota.model.job import Status
from rota.store.driver import Operation, Query

INSERT_MAX = 1_000
"""Rows of one INSERT."""
KEY_TRIES = 5
"""Tries of an enqueue when the job that held its key was cancelled in the same moment."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A job to insert: the columns of `job`.

    A delay and a time to expire are seconds that the database adds to its clock. Queue and priority
    default to the type's in the database.
    """

    queue: str | None
    job_type: str
    payload: str
    payload_version: int | None
    priority: int | None
    run_at: datetime | None
    delay_s: float | None
    expires_s: float | None
    max_attempts: int | None
    idempotency_key: str | None
    meta: str | None


_ALIKE = frozenset(NewRow.__slots__) - {"payload", "idempotency_key"}
"""What jobs that are inserted as alike have in common."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """The result of a row: its id, or that of the job that holds its key."""

    id: int
    created: bool
    status: str


def insert(row: NewRow) -> Operation[Inserted]:
    """Insert one job with one statement, and one more if its key is taken."""
    params = {name: getattr(row, name) for name in row.__slots__}
    for _ in range(KEY_TRIES):
        found = yield Query("job_insert", params)
        if found:
            return Inserted(found[0][0], True, Status.QUEUED.value)
        holders = yield Query(
            "key_holders", {"job_types": [row.job_type], "keys": [row.idempotency_key]}
        )
        if holders:
            return Inserted(holders[0][1], False, holders[0][2])
    raise _key_contended(row)


def insert_alike(row: NewRow, payloads: Sequence[str]) -> Operation[list[int]]:
    """Insert jobs that differ from `row` in their payloads only; return their ids, in order.

    `row` has no idempotency key. It does what `insert_many` does with the same jobs, but the server
    gets one JSON array instead of one per column. Run it in one transaction.
    """
    common = {name: getattr(row, name) for name in row.__slots__ if name in _ALIKE}
    ids: list[int] = []
    for start in range(0, len(payloads), INSERT_MAX):
        chunk = payloads[start : start + INSERT_MAX]
        given = {"payloads": f"[{','.join(chunk)}]", "count": len(chunk)}
        found = yield Query("job_insert_alike", common | given)
        if len(found) < len(chunk):
            raise RotaError(
                f"{len(chunk) - len(found)} of {len(chunk)} jobs were not inserted, because a "
                "trigger on rota.job left them out; roll back if the transaction is yours"
            )
        ids += sorted([row[0] for row in found])
    return ids


def insert_many(rows: Sequence[NewRow]) -> Operation[list[Inserted]]:
    """Insert jobs in bulk; results are in the order of the input. Run it in one transaction.

    Keys are taken in sorted order over the whole call, so that two bulks with the same keys cannot
    deadlock. Ids still ascend in the order of the input, because they are reserved first.
    """
    if not rows:
        return []
    reserved = yield Query("job_reserve", {"count": len(rows)})
    ids = [row[0] for row in reserved]
    results: dict[int, Inserted] = {}
    pending = sorted(range(len(rows)), key=lambda at: _lock_order(rows[at], at))
    for _ in range(KEY_TRIES):
        refused: list[int] = []
        for start in range(0, len(pending), INSERT_MAX):
            chunk = pending[start : start + INSERT_MAX]
            columns = _columns([rows[at] for at in chunk], [ids[at] for at in chunk])
            found = yield Query("job_insert_many", columns)
            inserted = {row[0] for row in found}
            for at in chunk:
                if ids[at] in inserted:
                    results[at] = Inserted(ids[at], True, Status.QUEUED.value)
                else:
                    refused.append(at)
        if refused:
            asked = {
                "job_types": [rows[at].job_type for at in refused],
                "keys": [rows[at].idempotency_key for at in refused],
            }
            for place, holder, status in (yield Query("key_holders", asked)):
                results[refused[place - 1]] = Inserted(holder, False, status)
        pending = [at for at in refused if at not in results]
        if not pending:
            return [results[at] for at in range(len(rows))]
    raise _key_contended(rows[pending[0]])


def _lock_order(row: NewRow, at: int) -> tuple[bool, bytes, bytes, int]:
    # The order of the INSERT itself: by code point, as with collate "C".
    if row.idempotency_key is None:
        return (True, b"", b"", at)
    return (False, row.job_type.encode(), row.idempotency_key.encode(), at)


def _columns(rows: Sequence[NewRow], ids: list[int]) -> dict[str, Any]:
    return {
        "ids": ids,
        "queues": [row.queue for row in rows],
        "job_types": [row.job_type for row in rows],
        "payloads": [row.payload for row in rows],
        "payload_versions": [row.payload_version for row in rows],
        "priorities": [row.priority for row in rows],
        "run_ats": [row.run_at for row in rows],
        "delays_s": [row.delay_s for row in rows],
        "expires_s": [row.expires_s for row in rows],
        "max_attempts": [row.max_attempts for row in rows],
        "idempotency_keys": [row.idempotency_key for row in rows],
        "metas": [row.meta for row in rows],
    }


def _key_contended(row: NewRow) -> RotaError:
    return RotaError(
        f"the idempotency key {row.idempotency_key!r} of job type {row.job_type!r} was taken and "
        f"freed {KEY_TRIES} times while this call "
        "tried to insert; nothing was inserted, try again"
    )


def payload_bytes_max() -> Operation[int]:
    """Read the payload limit of this schema, in bytes."""
    return (yield Query("payload_bytes_max"))[0][0]  # type: ignore[no-any-return]
