"""No INSERT makes a row that stops other producers, readers or a schedule, whoever inserts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import rota
from tests.store.work import Connection, insert
from tests.support.rules import rule

TIMES = ("created_at", "scheduled_for", "updated_at", "started_at", "cancel_requested_at")
TEXTS = ("last_error", "error_type", "verdict", "verdict_rule", "cancel_reason")


def refuse(connection: Connection, bound: str, **columns: object) -> None:
    """Insert a row with these columns, which is refused under this name."""
    names = ", ".join(columns)
    values = ", ".join(f"%({name})s" for name in columns)
    statement = f"insert into rota.job (job_type, {names}) values ('t', {values})"
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(statement.encode(), columns)
    assert refused.value.diag.constraint_name == bound
    assert (refused.value.diag.schema_name, refused.value.diag.table_name) == ("rota", "job")
    assert connection.execute("select from rota.job").fetchall() == []


@rule("M15", "M20")
def test_an_id_above_the_sequence_is_refused_and_one_that_was_reserved_is_taken(
    shared: Connection,
) -> None:
    refuse(shared, "job_id", id=10**12)
    for id_ in (0, -1, -(2**63)):  # no call of Python's takes it: it could not be cancelled
        refuse(shared, "job_id", id=id_)
    [last] = insert(shared)
    shared.execute("delete from rota.job")
    refuse(shared, "job_id", id=last + 100)
    reserved = [id_ for (id_,) in shared.execute("select unnest(rota.ids_reserve(3))").fetchall()]
    shared.execute("insert into rota.job (id, job_type) values (%s, 't')", [reserved[1]])
    # The next producers meet no row of theirs.
    assert len(insert(shared, 200)) == 200


@rule("M85")
def test_a_progress_that_rota_did_not_write_keeps_no_job_from_being_read(
    app: rota.App, shared: Connection
) -> None:
    for progress in ("5", '{"done": "many"}', '{"done": 1, "total": null, "note": null, "at": 1}'):
        [id_] = insert(shared, progress=progress)
        [job] = app.find(limit=1)
        assert (job.id, job.progress) == (id_, None)
        assert job.to_dict()["progress"] == json.loads(progress)


@rule("M15", "M33", "M85")
def test_a_value_that_python_cannot_read_or_that_is_of_megabytes_is_refused(
    shared: Connection,
) -> None:
    for column in TIMES:
        for time in ("infinity", "20000-01-01", "0044-03-15 BC"):
            refuse(shared, "job_created_at", **{column: time})
    refuse(shared, "job_created_at", status="running", locked_by="w", locked_until="infinity")
    for column in TEXTS:
        refuse(shared, "job_last_error", **{column: "x" * 2_000_000})
    long = "".join(map(str, range(10_000)))  # an index would refuse it in words of its own
    for column in ("queue", "idempotency_key", "group_key"):
        refuse(shared, f"job_{column}", **{column: long})
        refuse(shared, f"job_{column}", **{"queue": "q", "priority": 0, column: long})


@rule("M82")
def test_a_foreign_run_that_would_silence_its_schedule_is_refused(shared: Connection) -> None:
    for columns in ({"status": "waiting"}, {"run_at": "8999-01-01"}, {"status": "failed"}):
        refuse(shared, "job_schedule", schedule="nightly", **columns)
    longest_jitter = datetime.now(UTC) + timedelta(days=1)
    assert insert(shared, schedule="nightly", run_at=longest_jitter)
