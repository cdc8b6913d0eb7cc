"""An INSERT asks job_refusal about rows that are not plain: so no row that it refuses is plain."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.store.work import Connection
from tests.support.rules import rule

PLAIN: dict[str, Any] = {
    "id": 1, "job_type": "mail", "queue": "default", "priority": 0, "status": "queued",
    "payload": {}, "attempts": 0, "claims": 0, "run_at": "2026-01-01T00:00:00Z",
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
TAKEN: list[dict[str, Any]] = [
    {},
    {"idempotency_key": "k" * 100, "max_attempts": 10_000, "payload_version": 1, "priority": -100},
    {"expires_at": "8999-12-31T00:00:00Z", "meta": {"trace": "4bf92f"}, "payload": {"user": 7}},
    {"timeout": "1 minute", "group_key": "anna", "group_capacity": 3},
]
REFUSED: list[dict[str, Any]] = [
    {"job_type": ""}, {"job_type": "t" * 201}, {"queue": ""}, {"queue": "q" * 101},
    {"priority": 101}, {"priority": -101}, {"payload_version": 0},
    {"max_attempts": 0}, {"max_attempts": 10_001},
    {"idempotency_key": ""}, {"idempotency_key": "k" * 256},
    {"status": "done"}, {"status": "running"},
    {"locked_by": "w", "locked_until": "2026-01-01T00:00:00Z"},
    *(
        {column: time}
        for column in (
            "run_at", "expires_at", "created_at", "updated_at", "started_at", "failed_at",
            "scheduled_for", "cancel_requested_at",
        )
        for time in ("1969-12-31T00:00:00Z", "infinity")
    ),
    {"payload": []}, {"payload": "text"}, {"payload": {"text": "x" * 65_536}},
    {"meta": []}, {"meta": {"text": "x" * 65_536}},
    *(
        {column: "x" * 65_537}
        for column in (
            "last_error", "error_type", "verdict", "verdict_rule", "cancel_reason", "schedule",
        )
    ),
    {"mismatched_releases": ["x" * 65_537]},
    {"timeout": "0"},
    {"progress": {"done": 1, "total": None, "note": "x" * 65_536, "at": "2026-01-01T00:00:00Z"}},
    {"group_key": ""}, {"group_key": "g" * 256}, {"group_capacity": 0}, {"group_capacity": 1001},
]  # fmt: skip


@rule("M12")
def test_a_usual_row_is_plain(shared: Connection) -> None:
    for columns in TAKEN:
        assert _look(shared, columns) == (True, None), columns


@rule("M12", "M15")
def test_no_row_that_is_refused_is_plain(shared: Connection) -> None:
    for columns in REFUSED:
        is_plain, refusal = _look(shared, columns)
        assert (is_plain, bool(refusal)) == (False, True), columns


def _look(connection: Connection, columns: dict[str, Any]) -> tuple[bool, str | None]:
    [[is_plain, refusal]] = connection.execute(
        "select rota.job_row_is_plain(j) is not false, rota.job_refusal(j)"
        " from jsonb_populate_record(null::rota.job, %s) j",
        [Jsonb({**PLAIN, **columns})],
    ).fetchall()
    return is_plain, refusal
