"""What is taken for a restored copy, and what is not.

Databases are really copied and renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import rota
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import drive
from rota.store.drivers.psycopg3 import PsycopgDriver
from rota.store.migrate import migrate
from tests.store.work import Connection, Hand, insert
from tests.support.databases import wait_until_unused
from tests.support.rules import rule
from tests.support.server import PostgresServer


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def check(connection: Connection) -> str | None:
    """What a worker asks when it starts."""
    return drive(PsycopgDriver(connection), ops.copy_check(), Database("").statements)


def command(connection: Connection, text: str, *names: str) -> None:
    connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))


@contextmanager
def made(server: PostgresServer, template: str) -> Iterator[str]:
    """The name of a database, made from a template and dropped in the end."""
    name = f"c_{uuid4().hex[:12]}"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        wait_until_unused(template, admin)
        command(admin, "create database {} template {}", name, template)
        try:
            yield name
        finally:
            command(admin, "drop database if exists {} with (force)", name)


@rule("M87")
def test_a_copy_under_another_name_claims_nothing_until_a_person_releases_it(
    server: PostgresServer, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as own:
        insert(own, 1)  # no worker was ever here, but the jobs belong to a user
    with (
        made(server, name_of(database)) as name,
        psycopg.connect(server.url(name), autocommit=True) as copy,
    ):
        difference = check(copy)
        assert difference is not None and name in difference
        assert migrate(server.url(name)).applied == []  # which does not stamp anew
        assert check(copy) == difference
        assert copy.execute("select rota.installation_paused() is not null").fetchone() == (True,)
        claimed = Hand(copy).claim()  # a claim in SQL reports it too
        assert (claimed.jobs, set(claimed.paused)) == ([], {"default"})

        app = rota.App(server.url(name))
        assert app.queues.resume_copy(why="staging", by="anna") is True
        assert app.queues.resume_copy() is False
        app.close()
        assert check(copy) is None
        assert len(Hand(copy).claim().jobs) == 1
        [(verb, by, why, detail)] = copy.execute(
            "select verb, by, why, detail from rota.action"
        ).fetchall()
        assert (verb, by, why, detail) == ("resume", "anna", "staging", {"copy": difference})


@rule("M15", "M87")
def test_where_only_workers_in_sql_work_their_first_claim_in_a_copy_sees_that_it_is_one(
    server: PostgresServer, database: str
) -> None:
    claim = "select id from rota.claim('default', '{t}', 'shell')"
    with psycopg.connect(database, autocommit=True) as own:
        insert(own, 2)
        assert len(own.execute(claim).fetchall()) == 1
        row = own.execute("select ctid from rota.installation").fetchone()
        assert len(own.execute(claim).fetchall()) == 1
        # A right stamp costs no write.
        assert own.execute("select ctid from rota.installation").fetchone() == row
        insert(own, 1)
    with (
        made(server, name_of(database)) as name,
        psycopg.connect(server.url(name), autocommit=True) as copy,
        psycopg.connect(server.url(name)) as open_one,
    ):
        said: list[str] = []
        copy.add_notice_handler(
            lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}")
        )
        assert open_one.execute(claim).fetchall() == []  # and keeps its transaction open
        copy.execute("set lock_timeout = '5s'")
        assert copy.execute(claim).fetchall() == []
        assert [name in line and "rota.resume_copy()" in line for line in said] == [True]
        open_one.commit()
        assert copy.execute("select rota.installation_paused() is not null").fetchone() == (True,)
        copy.execute("select rota.resume_copy()")
        assert len(copy.execute(claim).fetchall()) == 1


@rule("M87")
def test_a_dump_restored_on_another_server_under_the_same_name_is_a_copy(
    shared: Connection,
) -> None:
    assert check(shared) is None
    assert shared.execute(
        "select i.system_identifier = c.system_identifier "
        "from rota.installation i, pg_control_system() c"
    ).fetchone() == (True,)
    insert(shared, 1)
    shared.execute("update rota.installation set system_identifier = system_identifier + 1")
    assert Hand(shared).claim().jobs == [], "it was restored under a worker that runs"
    assert "of server" in str(check(shared))
    # Stamped where the role may not read the server's identifier: the names decide.
    shared.execute("update rota.installation set system_identifier = null")
    assert check(shared) is None


@rule("M87")
def test_a_part_of_a_dump_that_has_jobs_and_not_yet_its_record_gives_nothing(
    connection: Connection,
) -> None:
    assert check(connection) is None
    insert(connection, 1)
    connection.execute("delete from rota.installation")
    assert Hand(connection).claim().jobs == []
    assert check(connection) == "the database has no record of which one it is"
    assert "copied" in str(connection.execute("select rota.installation_paused()").fetchone())
    connection.execute("select rota.resume_copy()")
    assert len(Hand(connection).claim().jobs) == 1


@rule("M87")
def test_a_copy_of_an_empty_template_stamps_anew_by_itself_also_with_jobs_of_its_own(
    database: str, connection: Connection
) -> None:
    stamped = connection.execute("select database_name from rota.installation").fetchone()
    insert(connection, 1)
    connection.execute("select * from rota.pause_all()")
    assert check(connection) is None
    assert (
        stamped
        != connection.execute("select database_name from rota.installation").fetchone()
        == (name_of(database),)
    )


@rule("M87")
@pytest.mark.parametrize("what", ["jobs", "a worker"])
def test_a_copy_of_a_template_that_had_something_to_protect_is_a_copy(
    server: PostgresServer, database: str, connection: Connection, what: str
) -> None:
    if what == "jobs":
        insert(connection, 1)
    else:
        assert check(connection) is None
    connection.close()
    with (
        made(server, name_of(database)) as name,
        psycopg.connect(server.url(name), autocommit=True) as copy,
    ):
        assert check(copy) is not None


@rule("M87")
def test_a_renamed_database_is_stopped_and_goes_on_when_it_is_named_back(
    server: PostgresServer, admin: Connection, database: str
) -> None:
    other = f"r_{uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as own:
        assert check(own) is None
        insert(own, 1)
    wait_until_unused(name_of(database), admin)
    command(admin, "alter database {} rename to {}", name_of(database), other)
    with psycopg.connect(server.url(other), autocommit=True) as own:
        assert check(own) is not None
        assert Hand(own).claim().jobs == []
    wait_until_unused(other, admin)
    command(admin, "alter database {} rename to {}", other, name_of(database))
    with psycopg.connect(database, autocommit=True) as own:
        assert check(own) is None
        assert len(Hand(own).claim().jobs) == 1


@rule("M87")
def test_where_the_server_may_not_be_asked_the_name_alone_decides(
    database: str, connection: Connection, role: str
) -> None:
    assert check(connection) is None
    connection.execute("revoke execute on function pg_control_system() from public")
    command(connection, "grant all on all tables in schema rota to {}", role)
    with psycopg.connect(make_conninfo(database, user=role)) as theirs:
        assert theirs.execute("select rota.system_identifier()").fetchone() == (None,)
        assert check(theirs) is None
