"""No INSERT makes a row that stops other producers, readers or a schedule, whoever inserts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.cli import run
from tests.store.planned import put, set_clock
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
    connection: Connection,
) -> None:
    refuse(connection, "job_id", id=10)
    for id_ in (0, -1, -(2**63)):  # no call of Python's takes it: it could not be cancelled
        refuse(connection, "job_id", id=id_)
    [last] = insert(connection)
    connection.execute("delete from rota.job")
    refuse(connection, "job_id", id=last + 100)
    reserved = [
        id_ for (id_,) in connection.execute("select unnest(rota.ids_reserve(3))").fetchall()
    ]
    connection.execute("insert into rota.job (id, job_type) values (%s, 't')", [reserved[1]])
    # The next producers meet no row of theirs.
    assert len(insert(connection, 200)) == 200


@rule("M15", "M33")
@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("value", ["infinity", "-infinity", "9000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_cannot_read_is_refused(
    connection: Connection, column: str, value: str
) -> None:
    refuse(connection, "job_created_at", **{column: value})


@rule("M15")
def test_a_lease_for_ever_is_refused(connection: Connection) -> None:
    refuse(
        connection, "job_created_at",
        status="running", locked_by="w", locked_until="infinity",
    )  # fmt: skip


@rule("M15", "M85")
@pytest.mark.parametrize(
    "change",
    [
        {"done": "many"}, {"done": None}, {"total": "1"}, {"note": 1}, {"at": None},
        {"at": "never"}, {"at": "infinity"}, {"at": "2026-01-14 10:00:00"},
        {"at": "0001-01-01T00:00:00Z"},
    ],
)  # fmt: skip
def test_a_progress_that_python_cannot_read_is_refused(
    connection: Connection, change: dict[str, object]
) -> None:
    good = {"done": 1.5, "total": None, "note": "a", "at": "2026-01-14T10:00:00.5+00:00"}
    for value in (good | change, {key: good[key] for key in good if key not in change}, [good], 5):
        refuse(connection, "job_progress", progress=json.dumps(value))
    [id_] = insert(connection, progress=json.dumps(good))
    progress = rota.App(connection.info.dsn).get(id_).progress
    assert progress is not None and progress.done == 1.5
    connection.execute("delete from rota.job")


GOOD = '{"done": 1, "total": null, "note": null, "at": "2026-01-14T10:00:00+00:00"}'


@rule("M15", "M85")
@pytest.mark.parametrize(
    ("part", "becomes"),
    [
        ("1,", "1e400,"), ("1,", "9" * 5_000 + ","), ("1,", "-1,"),
        ('"total": null', '"total": 1e400'), ('"total": null', '"total": -1'),
        ("T10:00:00", "T24:00:00"), ("T10:00:00", "T10:60:00"), ("T10:00:00", "T10:00:60"),
        ("2026-01-14", "2026-02-31"), ("2026-01-14", "2026-00-14"), ("2026-01-14", "2027-02-29"),
        ("2026-01-14", "2026-01-00"), ("2026-01-14", "2026-13-14"), ("2026-01-14", "0000-01-14"),
        ("2026-01-14", "9999-12-31"), ("2026-01-14T10:00:00+00:00", "8999-12-31T23:59:59-12:00"),
        ("2026-01-14T10:00:00+00:00", "1970-01-01T00:00:00+01:00"),
        ("+00:00", "+16:00"), ("+00:00", "-99:00"), ("+00:00", "+00:60"), ("+00:00", ""),
    ],
)  # fmt: skip
def test_a_progress_that_only_postgresql_can_read_is_refused(
    connection: Connection, part: str, becomes: str
) -> None:
    assert part in GOOD
    refuse(connection, "job_progress", progress=GOOD.replace(part, becomes, 1))


@rule("M85")
@pytest.mark.parametrize(
    ("part", "becomes"),
    [
        ("1,", "9007199254740992,"), ("1,", "5e-324,"), ("1,", "0." + "1" * 5_000 + ","),
        ("2026-01-14", "2028-02-29"), ("2026-01-14", "2026-12-31"), ("T10:00:00", "T23:59:59"),
        ("2026-01-14T10:00:00+00:00", "8999-12-31T23:59:59Z"),
        ("2026-01-14T10:00:00+00:00", "1970-01-01T05:30:00.123456+05:30"),
        ("+00:00", "-15:59"),
    ],
)  # fmt: skip
def test_every_progress_that_is_taken_is_shown(
    database: str,
    connection: Connection,
    capsys: pytest.CaptureFixture[str],
    part: str,
    becomes: str,
) -> None:
    [id_] = insert(
        connection,
        progress=GOOD.replace(part, becomes, 1),
        status="running",
        locked_by="w",
        locked_until=datetime.now(UTC) + timedelta(hours=1),
    )
    for command in (["job", str(id_)], ["job", str(id_), "--json"], ["jobs"], ["top", "--once"]):
        assert run([*command, "--url", database, "--schema", "rota"]) == 0
    assert "Traceback" not in capsys.readouterr().err


@rule("M15", "M85")
@pytest.mark.parametrize("column", TEXTS)
def test_a_text_of_megabytes_is_refused(connection: Connection, column: str) -> None:
    refuse(connection, "job_last_error", **{column: "x" * 2_000_000})


@rule("M82")
@pytest.mark.parametrize(
    "columns",
    [{"status": "waiting"}, {"run_at": "8999-01-01"}, {"status": "failed"}],
)
def test_a_foreign_run_that_would_silence_its_schedule_is_refused(
    connection: Connection, columns: dict[str, str]
) -> None:
    refuse(connection, "job_schedule", schedule="nightly", **columns)


@rule("M82")
def test_a_run_with_the_longest_jitter_is_taken(connection: Connection, database: str) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, jitter="1 day")
    app = rota.App(database)
    app.job("t")(lambda: None)
    app.drain()
    set_clock(connection, "2026-03-01 12:00:00")
    app.drain()
    assert connection.execute("select count(*) from rota.job").fetchone() == (1,)
    assert app.schedules.trigger("s")
    app.close()


@rule("M85")
def test_whatever_a_role_inserts_rota_jobs_can_show_it(
    database: str, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    for column in (*TIMES, *TEXTS, "progress"):
        large = json.dumps(
            {"done": 1, "total": 2, "note": "x" * 2_000_000, "at": "2026-01-14T10:00:00+00:00"}
        )
        for value in ("infinity", "{}", "x" * 2_000_000, large):
            try:
                connection.execute(
                    f"insert into rota.job (job_type, {column}) values ('t', %s)".encode(), [value]
                )
            except psycopg.Error:
                continue
    assert run(["jobs", "--url", database, "--schema", "rota", "--json"]) == 0
    assert len(capsys.readouterr().out) < 100_000
