"""A row that Python could not read would stop every worker that claims it, and its whole batch with
it: the table refuses it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

import rota
from rota.store.migrate import migrate
from tests.support.rules import rule


@rule("M15", "M22", "M33")
def test_a_row_is_not_changed_to_what_python_cannot_read(shared: psycopg.Connection) -> None:
    # Minus infinity is in the past, and so means now.
    row = shared.execute(
        "insert into rota.job (job_type, run_at) values ('ok', '-infinity') returning run_at = "
        "rota.clock()"
    ).fetchone()
    assert row == (True,)
    with pytest.raises(psycopg.errors.CheckViolation, match="run_at must lie"):
        shared.execute("update rota.job set run_at = '-infinity'")


@rule("M12")
def test_a_change_by_hand_is_not_refused_for_what_was_so_before(
    database: str, connection: psycopg.Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload) values ('ok', %s)", [f'{{"a": "{"x" * 3_000}"}}']
    )
    migrate(database, payload_bytes_max=2_000)
    connection.execute("update rota.job set run_at = rota.clock() + interval '1 h', priority = 7")
    with pytest.raises(psycopg.errors.CheckViolation, match="priority must be"):
        connection.execute("update rota.job set priority = 1000")


@rule("M82")
def test_a_schedule_that_python_cannot_read_is_refused(shared: psycopg.Connection) -> None:
    for column in ("next_run_at", "since", "paused_at", "disabled_at", "last_run_at", "created_at"):
        for value in ("infinity", "0044-03-15 BC"):
            with pytest.raises(psycopg.errors.CheckViolation, match="times_are_readable"):
                shared.execute(
                    f"insert into rota.schedule (name, job_type, {column}) "
                    f"values ('s', 'ok', '{value}')".encode()
                )


def test_the_latest_time_that_the_client_takes_can_be_stored_and_read(database: str) -> None:
    app = rota.App(database)

    @app.job("ok", expires="36500d")
    async def ok() -> None: ...

    with pytest.raises(rota.UsageError, match="run_at must lie before the year 9000"):
        ok.using(run_at=datetime(9000, 1, 1, tzinfo=UTC))
    last = datetime(8999, 12, 31, 23, tzinfo=UTC)
    assert app.get(ok.using(run_at=last).enqueue().id).run_at == last
    with pytest.raises(rota.PayloadError, match=r"'meta': .* over the limit"):
        ok.using(meta={"text": "x" * 70_000}).enqueue()
    app.close()
