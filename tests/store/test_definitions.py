"""Functions, views, triggers: replaced when their text changed, never by an older release; and the
lists of columns that several share, which grow while sessions are open."""

from __future__ import annotations

import subprocess

import psycopg
import pytest

import rota
from rota.errors import SchemaError, SchemaMissing
from rota.store import columns, ops
from rota.store import migrate as schema
from rota.store.columns import CLAIMED, JOB
from rota.store.migrate import Migrated, as_sql, definitions, migrate
from tests.store.work import Connection, Hand, insert
from tests.support.rules import rule
from tests.support.server import PostgresServer


def _body(connection: Connection, name: str) -> str:
    row = connection.execute(
        "select prosrc from pg_proc where pronamespace = 'rota'::regnamespace and proname = %s",
        [name],
    ).fetchone()
    assert row is not None
    return str(row[0])


def _record(connection: Connection, name: str, release: str) -> None:
    """As if that release had made this one, with another text."""
    connection.execute(
        (
            f"create or replace function rota.{name}(p_took interval) returns int language sql as "
            f"'select null::int'"
        ).encode()
    )
    connection.execute(
        "update rota.definition set hash = 'another', release = %s where name = %s", [release, name]
    )


def test_a_function_whose_text_changed_is_replaced_and_no_other(
    connection: Connection, database: str
) -> None:
    text = _body(connection, "time_bucket")
    _record(connection, "time_bucket", "0.0.9")
    before = connection.execute(
        "select oid, xmin, proname from pg_proc where pronamespace = 'rota'::regnamespace"
    ).fetchall()
    assert migrate(database) == Migrated([], ["time_bucket"], {})
    after = connection.execute(
        "select oid, xmin, proname from pg_proc where pronamespace = 'rota'::regnamespace"
    ).fetchall()
    assert {row[2] for row in set(after) - set(before)} == {"time_bucket"}
    assert _body(connection, "time_bucket") == text
    assert migrate(database) == Migrated([], [], {})


@rule("M3")
def test_an_older_release_leaves_the_functions_of_a_newer_one_alone(
    connection: Connection, database: str
) -> None:
    _record(connection, "time_bucket", "0.10.0")  # as numbers, not as texts
    assert migrate(database) == Migrated([], [], {"time_bucket": "0.10.0"})
    assert _body(connection, "time_bucket") == "select null::int"
    app = rota.App(database)
    assert app.sync().job_types == []  # and it works with them
    app.close()


def test_plain_sql_of_an_older_release_is_refused_by_a_newer_schema(connection: Connection) -> None:
    _record(connection, "time_bucket", "0.10.0")
    with (
        pytest.raises(
            psycopg.errors.RaiseException, match="functions of a newer release than this script"
        ),
        connection.transaction(),
    ):
        connection.execute(as_sql().encode())
    assert _body(connection, "time_bucket") == "select null::int"


def test_a_release_whose_functions_are_missing_is_refused(
    connection: Connection, database: str
) -> None:
    _record(connection, "time_bucket", "0.0.9")
    app = rota.App(database)
    with pytest.raises(SchemaMissing, match="lacks this release's time_bucket: run `rota migrate`"):
        app._database.run(schema.check("rota"))
    app.close()


@rule("M12", "M22")
def test_a_setting_survives_every_migration(connection: Connection, database: str) -> None:
    migrate(database, payload_bytes_max=2_048)
    clock = "select pg_catalog.statement_timestamp() + interval '1 day'"
    connection.execute(
        (
            f"create or replace function rota.clock() returns timestamptz language sql stable as "
            f"$${clock}$$"
        ).encode()
    )
    connection.execute("delete from rota.definition")
    assert len(migrate(database).replaced) > 100
    with connection.transaction():
        connection.execute(as_sql(after=1).encode())
    assert _body(connection, "payload_bytes_max") == "select 2048"
    assert _body(connection, "clock") == clock


@rule("M3")
def test_what_was_changed_by_hand_is_named_and_put_back_only_on_request(
    connection: Connection, database: str
) -> None:
    app = rota.App(database)
    app._database.run(schema.check("rota", server_text=True))
    connection.execute("alter function rota.time_bucket(interval) volatile")
    connection.execute("drop trigger job_insert_fill on rota.job")
    said = r"changed since `rota migrate`: .*job_insert_fill \(trigger\).*--restore` puts them back"
    with pytest.raises(SchemaError, match=said):
        app._database.run(schema.check("rota", server_text=True))
    with pytest.raises(SchemaError, match=said):
        migrate(database)
    assert migrate(database, restore=True).replaced == ["time_bucket", "job_insert_fill (trigger)"]
    assert migrate(database) == Migrated([], [], {})
    app._database.run(schema.check("rota", server_text=True))
    connection.execute(
        "alter function rota.time_bucket(interval) volatile; update rota.definition set "
        "server_major = 13"
    )
    # Another PostgreSQL's text cannot be compared.
    app._database.run(schema.check("rota", server_text=True))
    app.close()


@rule("M3")
def test_a_function_with_another_result_is_put_back_without_the_right_of_public(
    connection: Connection, database: str
) -> None:
    was = _body(connection, "job_archive")
    connection.execute(
        "drop function rota.job_archive; create function rota.job_archive(p_ids bigint[], "
        "p_why text, p_by text) returns int language sql as 'select 1'"
    )
    assert migrate(database, restore=True).replaced == ["job_archive"]
    assert _body(connection, "job_archive") == was
    may = "select has_function_privilege('public', %s, 'execute')"
    form = "rota.job_archive(bigint[], text, text)"
    assert connection.execute(may, [form]).fetchone() == (False,)


@rule("M3")
@pytest.mark.parametrize("hash", ["hash", "'older'"])
def test_a_function_of_others_with_a_name_of_rota_is_named_and_never_taken_for_rota_s(
    connection: Connection, database: str, hash: str
) -> None:
    """Also where a newer release replaces the function anyway."""
    connection.execute("create function rota.time_bucket(text) returns int language sql return 1")
    connection.execute(
        f"update rota.definition set hash = {hash} where name = 'time_bucket'".encode()
    )
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"then DROP FUNCTION rota.time_bucket\(text\)$"):
            migrate(database, restore=True)
    connection.execute("drop function rota.time_bucket(text)")
    assert migrate(database, restore=True).replaced == (["time_bucket"] if hash != "hash" else [])


def test_plain_sql_leaves_the_search_path_as_it_was(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute("create schema mine; set search_path = mine")
        connection.execute(as_sql().encode())
        assert connection.execute("show search_path").fetchone() == ("mine",)
        connection.execute("create table alembic_version (number text)")
        assert connection.execute(
            "select to_regclass('mine.alembic_version') is not null"
        ).fetchone() == (True,)


def test_plain_sql_also_makes_the_schema_statement_by_statement(
    empty_database: str, server: PostgresServer
) -> None:
    """As psql does without -1: no statement may depend on the transaction of another."""
    command = [str(server.program("psql")), "-Xq", "-v", "ON_ERROR_STOP=1", empty_database]
    for text in (as_sql(), as_sql(after=1)):
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    with psycopg.connect(empty_database) as connection:
        strays = "select relname from pg_class where relnamespace = 'public'::regnamespace"
        assert connection.execute(strays).fetchall() == []
        strays = "select proname from pg_proc where pronamespace = 'public'::regnamespace"
        assert connection.execute(strays).fetchall() == []
    assert migrate(empty_database) == Migrated([], [], {})


@rule("M3")
def test_a_restored_dump_is_as_migrate_made_it(
    connection: Connection, database: str, server: PostgresServer
) -> None:
    connection.execute("select rota.partitions_ensure(1)")
    dumped = subprocess.run(
        [server.program("pg_dump"), database], capture_output=True, text=True, check=True
    ).stdout
    connection.execute("drop schema rota cascade")
    subprocess.run(
        [server.program("psql"), "-Xq", database],
        input=dumped,
        text=True,
        check=True,
        capture_output=True,
    )
    app = rota.App(database)
    app._database.run(schema.check("rota", server_text=True))
    app.close()


def test_a_pre_release_counts_as_its_release(connection: Connection, database: str) -> None:
    for release in ("0.1.0rc1", "0.1.0.dev4"):
        _record(connection, "time_bucket", release)
        with connection.transaction(force_rollback=True):
            connection.execute(as_sql(after=1).encode())
        assert migrate(database) == Migrated([], ["time_bucket"], {})
    for release in ("0.2rc1", "1"):
        _record(connection, "time_bucket", release)
        with (
            pytest.raises(psycopg.errors.RaiseException, match="functions of a newer release"),
            connection.transaction(),
        ):
            connection.execute(as_sql(after=1).encode())
        assert migrate(database).newer == {"time_bucket": release}


def test_what_was_granted_to_public_stays_so_when_a_function_is_replaced(
    connection: Connection, database: str
) -> None:
    connection.execute("grant execute on function rota.job_cancel(bigint[], text, text) to public")
    connection.execute(
        "update rota.definition set hash = 'older' where name in ('job_cancel', 'job_archive')"
    )
    assert migrate(database).replaced == ["job_archive", "job_cancel"]
    may = (
        "select has_function_privilege('public', 'rota.' || %s || '(bigint[], text, text)', "
        "'execute')"
    )
    assert [
        connection.execute(may, [name]).fetchone() for name in ("job_cancel", "job_archive")
    ] == [(True,), (False,)]


def test_the_type_of_a_claimed_job_has_what_the_worker_reads(shared: Connection) -> None:
    rows = shared.execute(
        "select attname from pg_attribute where attrelid = 'rota.claimed_job'::regclass "
        "order by attnum"
    ).fetchall()
    assert tuple(row[0] for row in rows) == CLAIMED
    of_the_job = CLAIMED[len(columns.OF_THE_CLAIM) :]
    assert of_the_job == JOB[: len(of_the_job)]


@rule("M2", "M3")
def test_sessions_go_on_while_the_row_of_a_claim_grows(
    connection: Connection, second: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = insert(connection, 40)
    last = reversed(ids)
    old = Hand(second)
    taken: list[int] = []

    def claim_each_way() -> None:
        taken.extend(job.id for job in old.claim(2).jobs)
        taken.extend(job.id for job in old.claim(2, refused=[0]).jobs)
        taken.extend(
            row[0] for row in second.execute("select id from rota.claim('default', '{t}', 'w', 2)")
        )
        taken.extend(job.id for job in old.run(ops.claim_one(old.who, next(last))).jobs)

    for _ in range(3):
        claim_each_way()
    longer = {
        name: [*columns._LISTS[name], "first"] for name in ("content", "claimed", "claimed_values")
    }
    for name, listed in longer.items():
        monkeypatch.setitem(columns._LISTS, name, listed)
    definitions.cache_clear()
    with connection.transaction():
        for table in ("job", "job_history"):
            connection.execute(f"alter table rota.{table} add column first text".encode())
        connection.execute("alter type rota.claimed_job add attribute first text")
        for made in definitions():
            if "first" in made.text.split("$$")[0] or made.name == "job_finish":
                connection.execute(made.replacement("rota", is_new=False).encode())
    definitions.cache_clear()
    for _ in range(2):
        claim_each_way()
    assert len(taken) == len(set(taken)) == 35
