"""A plain INSERT from any language is an enqueue."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import rota
from rota.store.migrate import migrate
from tests.store.work import Connection
from tests.store.work import (
    insert as put,
)
from tests.support.rules import rule


def _declare(app: rota.App, name: str = "send", **options: Any) -> Any:
    def handler(data: str = "") -> None: ...

    declared = app.job(name, **options)(handler)
    app.sync()
    return declared


def _only(connection: Connection) -> dict[str, Any]:
    rows = connection.cursor(row_factory=dict_row).execute("select * from rota.job").fetchall()
    assert len(rows) == 1
    return rows[0]


@rule("M15")
def test_what_an_insert_leaves_out_comes_from_what_the_type_declared(
    app: rota.App, shared: Connection
) -> None:
    _declare(app, queue="email", priority=7, expires="1h", max_attempts=3)
    shared.execute("insert into rota.job (job_type, payload) values ('send', '{\"data\": \"x\"}')")
    job = _only(shared)
    assert (job["queue"], job["priority"], job["status"], job["payload"]) == (
        "email",
        7,
        "queued",
        {"data": "x"},
    )
    assert job["expires_at"] - job["run_at"] == timedelta(hours=1)
    assert job["max_attempts"] is None  # the type's at the time when the attempt is settled
    assert shared.execute("select max_attempts, origin_id = id from rota.jobs").fetchone() == (
        3,
        True,
    )


@rule("M15")
def test_a_type_that_was_never_declared_goes_to_the_default_queue(shared: Connection) -> None:
    shared.execute("insert into rota.job (job_type) values ('unheard')")
    job = _only(shared)
    assert (
        job["queue"],
        job["priority"],
        job["payload"],
        job["expires_at"],
        job["max_attempts"],
    ) == ("default", 0, {}, None, None)
    assert (job["status"], job["attempts"], job["claims"], job["origin_id"]) == (
        "queued",
        0,
        0,
        None,
    )
    assert shared.execute("select max_attempts from rota.jobs").fetchone() == (10,)


@rule("M15")
def test_an_old_name_takes_what_its_type_declares_now(app: rota.App, shared: Connection) -> None:
    _declare(app, "send", aliases=("mail",), queue="email")
    shared.execute("insert into rota.job (job_type) values ('mail')")
    assert _only(shared)["queue"] == "email"


@rule("M15", "M21")
def test_what_an_insert_names_is_taken_as_it_is(app: rota.App, shared: Connection) -> None:
    _declare(app, queue="email", priority=7, expires="1h")
    soon = datetime.now(UTC) + timedelta(hours=2)
    shared.execute(
        "insert into rota.job (job_type, queue, priority, run_at, expires_at, max_attempts, meta) "
        "values ('send', 'slow', -100, %s, %s, 1, %s)",
        [soon, soon + timedelta(minutes=1), Jsonb({"from": "psql"})],
    )
    job = _only(shared)
    assert (job["queue"], job["priority"], job["run_at"], job["expires_at"]) == (
        "slow",
        -100,
        soon,
        soon + timedelta(minutes=1),
    )
    assert (job["max_attempts"], job["meta"]) == (1, {"from": "psql"})


@rule("M22")
@pytest.mark.parametrize("columns", ["job_type, run_at", "job_type, queue, priority, run_at"])
def test_a_run_at_in_the_past_means_now_by_the_database_s_clock(
    shared: Connection, columns: str
) -> None:
    values = (
        "'t', 'q', 0, '2001-01-01 00:00Z'" if "queue" in columns else "'t', '2001-01-01 00:00Z'"
    )
    shared.execute(f"insert into rota.job ({columns}) values ({values})".encode())
    assert shared.execute(
        "select clock_timestamp() - run_at < '1 min' from rota.job"
    ).fetchone() == (True,)


@rule("M22")
def test_a_job_inserted_late_in_a_long_transaction_is_due_from_its_own_insert(
    database: str,
) -> None:
    with psycopg.connect(database) as connection:
        began = connection.execute("select now()").fetchone()
        connection.execute("select pg_sleep(0.05)")
        connection.execute("insert into rota.job (job_type) values ('t')")
        assert began is not None
        assert connection.execute("select run_at > %s from rota.job", began).fetchone() == (True,)


@rule("M51")
@pytest.mark.parametrize("ending", ["", " on conflict do nothing"])
def test_an_insert_whose_key_is_taken_inserts_nothing_and_raises_nothing(
    shared: Connection, ending: str
) -> None:
    statement = (
        f"insert into rota.job (job_type, idempotency_key) values ('t', 'k'){ending}".encode()
    )
    assert [shared.execute(statement).statusmessage for _ in range(3)] == [
        "INSERT 0 1",
        "INSERT 0 0",
        "INSERT 0 0",
    ]
    assert (
        shared.execute(
            "insert into rota.job (job_type, idempotency_key) values ('other', 'k')"
        ).rowcount
        == 1
    )


@rule("M51")
def test_an_insert_of_many_rows_inserts_those_whose_keys_are_free(shared: Connection) -> None:
    shared.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'b')")
    done = shared.execute(
        "insert into rota.job (job_type, idempotency_key) values ('t', 'a'), ('t', 'b'), ('t', "
        "'a'), ('t', null), ('t', null) returning idempotency_key"
    )
    assert done.fetchall() == [("a",), (None,), (None,)]


@rule("M51")
def test_a_key_that_a_trigger_changes_after_it_was_taken_is_refused(shared: Connection) -> None:
    shared.execute("""
        create function public.change() returns trigger language plpgsql as $$ begin
          new.idempotency_key := lower(new.idempotency_key); return new; end $$;
        create trigger z_change before insert on rota.job for each row
          execute function public.change()""")
    insert = "insert into rota.job (job_type, idempotency_key) values ('t', 'K')"
    with pytest.raises(psycopg.errors.CheckViolation, match="must run before job_insert_fill"):
        shared.execute(insert)
    shared.execute("alter trigger z_change on rota.job rename to a_change")
    assert [shared.execute(insert).rowcount for _ in range(2)] == [1, 0]


@rule("M15", "M51")
def test_copy_enqueues_as_insert_does(app: rota.App, shared: Connection) -> None:
    _declare(app, queue="email")
    with shared.cursor().copy(
        "copy rota.job (job_type, payload, idempotency_key) from stdin"
    ) as copy:
        for key in ("a", "b", "a", None):
            copy.write_row(("send", json.dumps({"data": key}), key))
    rows = shared.execute(
        "select queue, idempotency_key, payload->>'data' from rota.job order by id"
    ).fetchall()
    assert rows == [("email", "a", "a"), ("email", "b", "b"), ("email", None, None)]


def _payload_of(size: int) -> str:
    return json.dumps({"data": "x" * (size - len('{"data": ""}'))})


@rule("M12")
def test_the_limit_that_migrate_sets_holds_for_insert_and_for_python(
    app: rota.App, database: str, connection: Connection
) -> None:
    send = _declare(app)
    for limit in (1_024, 100_000):
        assert migrate(database, payload_bytes_max=limit).applied == []
        put(connection, payload=_payload_of(limit))
        with pytest.raises(psycopg.errors.CheckViolation, match="over the limit"):
            put(connection, payload=_payload_of(limit + 1))
        send.enqueue("x" * (limit - len('{"data": ""}')))
        with pytest.raises(rota.PayloadError, match=f"{limit + 1:,} bytes is over the limit"):
            send.enqueue("x" * (limit + 1 - len('{"data": ""}')))


@rule("M11")
def test_a_status_that_is_none_is_refused(shared: Connection) -> None:
    for status in ("succeeded", "cancelled", "retrying"):
        with pytest.raises(psycopg.errors.CheckViolation, match=f"failed or dead, not {status}"):
            shared.execute("insert into rota.job (job_type, status) values ('t', %s)", [status])
    [job] = put(shared)
    for status in ("succeeded", "Queued"):
        with pytest.raises(psycopg.errors.CheckViolation, match=f"failed or dead, not {status}"):
            shared.execute("update rota.job set status = %s where id = %s", [status, job])
