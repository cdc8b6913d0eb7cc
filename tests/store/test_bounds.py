"""No INSERT makes a row that stops other producers, readers or a schedule, whoever inserts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.store.work import insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
TIMES = ("updated_at", "started_at", "failed_at", "cancel_requested_at")
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


GOOD = '{"done": 1, "total": null, "note": null, "at": "2026-01-14T10:00:00+00:00"}'


@rule("M15", "M85")
def test_a_progress_that_python_cannot_read_is_refused(shared: Connection) -> None:
    good = json.loads(GOOD)
    changes: list[dict[str, object]] = [
        {"done": "many"}, {"done": None}, {"total": "1"}, {"note": 1}, {"at": None},
        {"at": "never"}, {"at": "infinity"}, {"at": "2026-01-14 10:00:00"},
    ]  # fmt: skip
    for change in changes:
        without = {key: good[key] for key in good if key not in change}
        for value in (good | change, without, [good], 5):
            refuse(shared, "job_progress", progress=json.dumps(value))
    for part, becomes in (
        ("1,", "1e400,"), ("1,", "9" * 5_000 + ","), ("1,", "-1,"),
        ('"total": null', '"total": -1'),
        ("T10:00:00", "T24:00:00"), ("T10:00:00", "T10:60:00"), ("T10:00:00", "T10:00:60"),
        ("2026-01-14", "2026-02-31"), ("2026-01-14", "2027-02-29"), ("2026-01-14", "0000-01-14"),
        ("2026-01-14", "9999-12-31"), ("2026-01-14T10:00:00+00:00", "8999-12-31T23:59:59-12:00"),
        ("+00:00", "+16:00"), ("+00:00", "+00:60"), ("+00:00", ""),
    ):  # fmt: skip
        assert part in GOOD
        refuse(shared, "job_progress", progress=GOOD.replace(part, becomes, 1))


@rule("M85")
def test_every_progress_that_is_taken_can_be_read(app: rota.App, shared: Connection) -> None:
    for part, becomes in (
        ("1,", "9007199254740992,"), ("1,", "5e-324,"), ("1,", "0." + "1" * 5_000 + ","),
        ("2026-01-14", "2028-02-29"), ("T10:00:00", "T23:59:59"),
        ("2026-01-14T10:00:00+00:00", "8999-12-31T23:59:59Z"),
        ("2026-01-14T10:00:00+00:00", "1970-01-01T05:30:00.123456+05:30"),
        ("+00:00", "-15:59"),
    ):  # fmt: skip
        [id_] = insert(shared, progress=GOOD.replace(part, becomes, 1))
        assert app.get(id_).progress is not None, becomes
        assert [job.id for job in app.find(limit=1)] == [id_], becomes


@rule("M15", "M33", "M85")
def test_a_value_that_python_cannot_read_or_that_is_of_megabytes_is_refused(
    shared: Connection,
) -> None:
    for column in TIMES:
        for time in ("infinity", "-infinity", "9000-01-01", "0044-03-15 BC"):
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
