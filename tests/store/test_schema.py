"""The schema: what it holds, how it is made, and the errors when it cannot be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from rota.errors import SchemaError
from rota.model.job import OVER, Status
from rota.model.states import TRANSITIONS
from rota.store.migrate import Migrated, as_sql, definitions, migrate, migrations
from tests.store.catalog import described, whole
from tests.support.rules import rule

SNAPSHOT = Path(__file__).with_name("schema.txt")
"""Written again by WRITE_SNAPSHOTS=1: look at the difference before you commit it."""
WRITES = os.environ.get("WRITE_SNAPSHOTS") == "1"
NAMES = [migration.name for migration in migrations()]
ALL = Migrated(NAMES, [definition.name for definition in definitions()], {})
NOTHING = Migrated([], [], {})


def _connect(url: str) -> psycopg.Connection[TupleRow]:
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """To a migrated database as it is elsewhere: with the server's real start."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from rota.definition where name = 'uptime'")
        migrate(database)
        yield connection


def _statuses(connection: psycopg.Connection[TupleRow]) -> tuple[set[str], set[str]]:
    """The statuses that `job` takes, and those that `job_history` takes."""
    rows = connection.execute(
        "select pg_get_triggerdef(oid) from pg_trigger where tgname = 'job_update_bounds' "
        "union all "
        "select pg_get_constraintdef(oid) from pg_constraint where conname = 'job_history_status' "
        "and conrelid = 'rota.job_history'::regclass"
    ).fetchall()
    live, over = (set(re.findall(r"'(\w+)'::text", row[0])) for row in rows)
    return live, over


@rule("M11")
def test_the_checks_allow_exactly_the_statuses_of_the_state_machine(
    connection: psycopg.Connection[TupleRow],
) -> None:
    live, over = _statuses(connection)
    # A dead job moves to history when it is resolved, and stays dead.
    archived = {Status.DEAD.value}
    assert over == {status.value for status in OVER} | archived
    assert live == {status.value for status in Status} - over | archived


@rule("M11")
def test_every_transition_leads_to_a_status_that_some_table_takes(
    connection: psycopg.Connection[TupleRow],
) -> None:
    takes, takes_over = _statuses(connection)
    assert {target.value for target in TRANSITIONS.values()} <= takes | takes_over
    live = {source.value for source, _ in TRANSITIONS if source is not None and source not in OVER}
    assert live <= takes
    assert all(target is source for (source, _), target in TRANSITIONS.items() if source in OVER)


def test_the_schema_is_the_one_in_the_snapshot(connection: psycopg.Connection[TupleRow]) -> None:
    now = described(connection)
    if WRITES:
        SNAPSHOT.write_text(now, encoding="utf-8")
    assert now == SNAPSHOT.read_text(encoding="utf-8"), (
        "the schema changed: WRITE_SNAPSHOTS=1 writes the snapshot again"
    )


def test_ten_migrations_that_start_at_once_apply_each_file_once(empty_database: str) -> None:
    together = Barrier(10)

    def migrate_at_once(_: int) -> Migrated:
        together.wait(30)
        return migrate(empty_database)

    with ThreadPoolExecutor(10) as pool:
        applied = list(pool.map(migrate_at_once, range(10)))
    assert sorted(applied, key=lambda did: len(did.applied)) == [NOTHING] * 9 + [ALL]
    with _connect(empty_database) as connection:
        recorded = connection.execute("select name from rota.migration order by number").fetchall()
    assert [row[0] for row in recorded] == NAMES


def test_migrating_again_changes_nothing(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    before = whole(connection)
    assert migrate(database) == NOTHING
    assert whole(connection) == before


def test_the_plain_sql_makes_the_same_schema_as_migrate(
    empty_database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    with _connect(empty_database) as other:
        with other.transaction():
            other.execute(as_sql().encode())
        assert whole(other) == whole(connection)
    assert migrate(empty_database) == NOTHING


def test_a_schema_of_another_name_is_the_same_schema(
    empty_database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    name = "work_queue_2"
    with _connect(empty_database) as other:
        assert migrate(empty_database, name) == ALL
        first = whole(other, name)
        other.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))
        with other.transaction():
            other.execute(as_sql(name).encode())
        assert whole(other, name) == first
        assert other.execute("select to_regnamespace('rota') is null").fetchone() == (True,)
    assert first == whole(connection)


@rule("M15")
def test_a_database_that_takes_a_backslash_for_an_escape_carries_it_as_well(
    empty_database: str,
) -> None:
    with _connect(empty_database) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("alter database {} set standard_conforming_strings = off").format(name)
        )
    migrate(empty_database)
    with _connect(empty_database) as connection:
        connection.execute("insert into rota.job (job_type) values ('a'), ('b'), ('c')")
        assert connection.execute(
            "select answer from rota.job_cancel(array[1], 'password=geheim123')"
        ).fetchall() == [("cancelled",)]
        assert connection.execute("select why from rota.action").fetchall() == [("password=***",)]
        connection.execute(
            "update rota.job set last_error = case id when 2 then %s else '100 percent' end",
            ["100%_\\"],
        )
        found = connection.execute(
            "select id from rota.jobs_find(null, null, null, null, null, null, null, null, %s, "
            "null, null, null, 10, null, null, null)",
            ["%_\\"],
        )
        assert found.fetchall() == [(2,)]


def test_a_migration_that_fails_leaves_nothing_behind(empty_database: str) -> None:
    with _connect(empty_database) as connection:
        connection.execute("create schema rota; create table rota.worker (mine int)")
        with pytest.raises(
            SchemaError, match=r"holds objects that Rota would make.*another name \(--schema\)"
        ):
            migrate(empty_database)
        left = connection.execute(
            "select relname from pg_class where relnamespace = 'rota'::regnamespace"
        ).fetchall()
    assert left == [("worker",)]


def test_two_schemas_in_one_database_do_not_meet(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    migrate(database, "second")
    connection.execute("insert into second.job (job_type, idempotency_key) values ('t', 'k')")
    connection.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'k')")
    assert connection.execute(
        "select (select count(*) from rota.job), (select count(*) from second.job)"
    ).fetchone() == (1, 1)


WITHOUT = """
    select c.oid::regclass::text from pg_class c
    where c.relnamespace = 'rota'::regnamespace and c.relkind in ('r', 'p')
      and (c.relreplident = 'n' or c.relreplident = 'd' and not exists (
        select from pg_index i where i.indrelid = c.oid and i.indisprimary))"""
"""The tables from which a publication refuses DELETE, partitions as well."""


@rule("M2")
def test_every_table_and_each_later_day_has_a_replica_identity(
    shared: psycopg.Connection[TupleRow],
) -> None:
    for table in ("job_history", "attempt"):
        shared.execute("select rota.partition_ensure(%s, '2150-01-01')", [table])
    assert shared.execute(WITHOUT).fetchall() == []
