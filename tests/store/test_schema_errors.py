"""A database that cannot carry Rota, or not this release of it: one sentence, exit 3, nothing
changed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from threading import Thread
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

import rota
from rota.declare.jsonb import PAYLOAD_BYTES_LEAST
from rota.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
)
from rota.store import ops
from rota.store.db import Border, Database
from rota.store.driver import drive
from rota.store.drivers.psycopg3 import PsycopgDriver
from rota.store.migrate import Migrated, migrate
from rota.store.settings import PAYLOAD_BYTES_MOST
from rota.store.statements import Statements
from tests.support.role import login_role
from tests.support.rules import rule
from tests.support.server import PostgresServer

Admin = psycopg.Connection[TupleRow]


@pytest.fixture
def role(admin: Admin, empty_database: str) -> Iterator[str]:
    """A role without a password or any right."""
    with login_role(admin, empty_database) as name:
        yield name


def _is_empty(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("select to_regnamespace('rota') is null").fetchone() == (True,)


def _serve(listening: socket.socket, version: bytes, answer: bytes) -> None:
    """Speak the protocol as far as a client needs it to hear which version it met, and answer what
    it sends next.
    """
    with listening.accept()[0] as client:
        # Requests for encryption are declined, until the start of a session.
        while client.recv(8192)[4:8] != struct.pack("!i", 196608):
            client.sendall(b"N")
        said = b"".join(
            b"S" + struct.pack("!i", 4 + len(fact)) + fact
            for fact in (
                b"server_version\x00" + version + b"\x00",
                b"server_encoding\x00UTF8\x00",
                b"client_encoding\x00UTF8\x00",
            )
        )
        client.sendall(b"R" + struct.pack("!ii", 8, 0) + said + b"Z" + struct.pack("!ic", 5, b"I"))
        client.recv(8192)
        client.sendall(answer)


def test_a_server_older_than_15_is_refused_by_its_version_before_it_is_asked_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Thread(target=_serve, args=[listening, b"14.23", b""])
        server.start()
        with pytest.raises(SchemaError, match="PostgreSQL 14 is too old: Rota needs 15 or newer"):
            migrate(f"postgresql://someone@127.0.0.1:{listening.getsockname()[1]}/any")
        server.join(10)
        assert not server.is_alive()


def test_a_role_that_may_not_create_the_schema_learns_the_grant_and_it_helps(
    empty_database: str, role: str, admin: Admin
) -> None:
    url = make_conninfo(empty_database, user=role)
    name = psycopg.conninfo.conninfo_to_dict(empty_database)["dbname"]
    with pytest.raises(SchemaError) as refused:
        migrate(url)
    grant = f"GRANT CREATE ON DATABASE {name} TO {role}"
    assert grant in str(refused.value)
    assert _is_empty(empty_database)
    admin.execute(grant.encode())
    assert migrate(url).applied


def test_a_database_that_is_not_utf8_is_refused_by_name(
    server: PostgresServer, admin: Admin
) -> None:
    name = f"t_{uuid4().hex[:12]}"
    admin.execute(
        sql.SQL("create database {} encoding 'SQL_ASCII' locale 'C' template template0").format(
            sql.Identifier(name)
        )
    )
    try:
        with pytest.raises(
            SchemaError, match=f"database '{name}' has encoding SQL_ASCII: Rota needs UTF8"
        ):
            migrate(server.url(name))
        assert _is_empty(server.url(name))
    finally:
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _of_the_future(connection: Admin, oldest_release: str) -> None:
    connection.execute(
        "insert into rota.migration (number, name, oldest_release, release) values (9999, "
        "'9999_future', %s, '99.0')",
        [oldest_release],
    )


def test_a_schema_too_new_for_this_release_is_refused(database: str, connection: Admin) -> None:
    _of_the_future(connection, "99.0")
    with pytest.raises(
        SchemaTooNew,
        match=(
            r"has migration 9999_future, which needs Rota 99.0 or newer; this is .*: install the "
            r"newer"
        ),
    ):
        migrate(database)
    with pytest.raises(SchemaTooNew):
        rota.App(database).sync()


def test_a_newer_schema_that_this_release_can_live_with_is_served(
    database: str, connection: Admin
) -> None:
    _of_the_future(connection, "0.1.0")
    assert migrate(database) == Migrated([], [], {})
    assert rota.App(database).sync().job_types == []


def test_a_database_that_was_never_migrated_says_so(empty_database: str) -> None:
    jobs = rota.Jobs()

    @jobs.job("t")
    def handler() -> None: ...

    app = rota.App(empty_database, jobs=[jobs])
    for use in (app.sync, app.drain, handler.enqueue, app.find, lambda: app.get(1)):
        with pytest.raises(SchemaMissing, match="run `rota migrate`"):
            use()
    assert _is_empty(empty_database)


def test_a_schema_that_lacks_a_migration_names_it(database: str, connection: Admin) -> None:
    connection.execute("delete from rota.migration where number = 1")
    with pytest.raises(SchemaMissing, match="schema 'rota' lacks 0001_tables: run `rota migrate`"):
        rota.App(database).sync()


@rule("M12")
def test_a_dump_without_its_rows_is_refused_with_what_to_do(
    database: str, connection: Admin
) -> None:
    connection.execute("delete from rota.migration")
    with pytest.raises(SchemaError, match="DROP SCHEMA rota CASCADE and migrate again"):
        migrate(database)
    connection.execute("drop schema rota cascade")
    assert migrate(database).applied


def test_a_schema_name_that_would_need_quoting_and_a_limit_out_of_range_are_refused(
    empty_database: str,
) -> None:
    names = ("", "Rota", "1st", "my-jobs", "a" * 51, 'x"; drop schema public; --', "pg_jobs")
    for name in names:
        with pytest.raises(ConfigurationError, match="a schema's name"):
            migrate(empty_database, name)
    for limit in (PAYLOAD_BYTES_LEAST - 1, PAYLOAD_BYTES_MOST + 1):
        with pytest.raises(SchemaError, match="the payload limit must be from 1,024 to 16,777,216"):
            migrate(empty_database, payload_bytes_max=limit)
    assert _is_empty(empty_database)


def test_a_wrong_password_is_a_setting_and_not_an_outage(
    server: PostgresServer, admin: Admin, empty_database: str, role: str
) -> None:
    admin.execute(
        "do $$ begin create role password_users; exception when duplicate_object or "
        "unique_violation then null; end $$"
    )
    admin.execute(
        sql.SQL("alter role {} password 'right'; grant password_users to {}").format(
            sql.Identifier(role), sql.Identifier(role)
        )
    )
    url = make_conninfo(empty_database, user=role, password="wrong")
    for use in (lambda: migrate(url), rota.App(url).find):
        with pytest.raises(ConfigurationError, match="rejects the user or password"):
            use()


def test_what_a_dba_has_to_set_is_a_setting_and_not_an_outage(
    admin: Admin, empty_database: str, role: str
) -> None:
    name = sql.Identifier(str(conninfo_to_dict(empty_database)["dbname"]))
    theirs = make_conninfo(empty_database, user=role)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("create schema rota")
    with pytest.raises(SchemaError, match=f"role '{role}' does not own schema 'rota': run"):
        migrate(theirs)
    admin.execute(sql.SQL("revoke connect on database {} from public").format(name))
    with pytest.raises(ConfigurationError, match=r"may not connect to the database: .*permission"):
        migrate(theirs)
    admin.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    with pytest.raises(SchemaError, match="is read-only"):
        migrate(empty_database)
    admin.execute(sql.SQL("alter database {} reset default_transaction_read_only").format(name))
    for use in (migrate, lambda url: rota.App(url).find()):
        with pytest.raises(ConfigurationError, match="not one of libpq's service file"):
            use("service=no_such_service")


def test_an_absent_server_is_an_outage_and_no_caller_waits_for_it() -> None:
    with socket.socket() as deaf:  # bound and not listening: no server can be there meanwhile
        deaf.bind(("127.0.0.1", 0))
        url = f"postgresql://someone@127.0.0.1:{deaf.getsockname()[1]}/any"
        for use in (
            lambda: migrate(url),
            rota.App(url).find,
            lambda: asyncio.run(rota.App(url).afind()),
        ):
            with pytest.raises(DatabaseUnavailable, match="refused"):
                use()


def test_a_database_that_is_not_there_is_a_setting(server: PostgresServer) -> None:
    with pytest.raises(ConfigurationError, match="the database in the URL does not exist"):
        migrate(server.url("no_such_database"))


def test_a_role_that_is_no_superuser_migrates_and_works(
    admin: Admin, empty_database: str, role: str
) -> None:
    database = psycopg.conninfo.conninfo_to_dict(empty_database)["dbname"]
    admin.execute(
        sql.SQL("grant create on database {} to {}").format(
            sql.Identifier(str(database)), sql.Identifier(role)
        )
    )
    url = make_conninfo(empty_database, user=role)
    assert migrate(url).applied
    app = rota.App(url)
    send = app.job("send")(lambda: None)
    app.enqueue_many(send.using(key=key).new() for key in ("a", "b", "a"))
    assert app.drain().succeeded == 2
    assert not send.using(key="b").enqueue().created
    app.close()


@rule("M2")
def test_a_pooler_whose_server_died_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # As PgBouncer does: without the field that PostgreSQL always sends beside it.
        fields = b"SFATAL\0C08P01\0Mserver conn crashed?\0\0"
        answer = b"E" + struct.pack("!i", 4 + len(fields)) + fields
        pooler = Thread(target=_serve, args=[listening, b"18.0", answer])
        pooler.start()
        url = f"postgresql://someone@127.0.0.1:{listening.getsockname()[1]}/any"
        with (
            pytest.raises(DatabaseUnavailable, match="server conn crashed"),
            Database(url, notify=False).open_connection("test") as connection,
            Border(is_own=True),
        ):
            drive(PsycopgDriver(connection), ops.payload_bytes_max(), Statements("rota"))
        pooler.join(10)
        assert not pooler.is_alive()
