"""for-the-dba.md: what a migration locks, what a removal leaves, and which functions act for
others."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store import migrate as migrations
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("for-the-dba.md")
CATALOGS = (
    "pg_class", "pg_proc", "pg_type", "pg_namespace", "pg_trigger", "pg_constraint", "pg_depend",
    "pg_description", "pg_default_acl", "pg_extension", "pg_event_trigger", "pg_cast",
    "pg_operator", "pg_publication",
)  # fmt: skip
ASK_WHO_CALLS = {
    "batch_ranges", "holders_lock", "holders_meet", "ids_reserve", "jobs_insert_for", "key_holders",
    "key_jobs", "keys_take", "lane_jobs",
}  # fmt: skip
"""Functions with the owner's rights that write, or that tell of jobs: they ask who calls."""
TELL_OF_NO_JOB = {"alert_matches", "canonical_type", "hidden_fields", "ids_behind"}
OF_TRIGGERS = {"job_check", "job_fill", "secret_check"}
Connection = psycopg.Connection[TupleRow]


@rule("M15")
@pytest.mark.parametrize(
    ("changed", "locked"),
    [
        ("name = ''", {}),
        ("name = 'job_claim'", {"definition": "RowExclusiveLock"}),
        ("name = 'jobs'", {"definition": "RowExclusiveLock", "jobs": "AccessExclusiveLock"}),
        (
            "name = 'job_insert_check (trigger)'",
            {"definition": "RowExclusiveLock", "job": "ShareRowExclusiveLock"},
        ),
    ],
    ids=["nothing", "function", "view", "trigger"],
)
def test_a_migration_locks_what_the_table_says(
    connection: Connection, changed: str, locked: dict[str, str]
) -> None:
    connection.execute(f"delete from rota.definition where {changed}".encode())
    with connection.transaction():
        migrations._apply(connection, "rota", ())
        held = connection.execute(
            "select relname, mode from pg_locks l join pg_class c on c.oid = l.relation "
            "where pid = pg_backend_pid() and relnamespace = 'rota'::regnamespace "
            "and relkind in ('r', 'p', 'v') and mode not in ('AccessShareLock', 'RowShareLock')"
        ).fetchall()
        [(lock,)] = connection.execute(
            "select classid::bigint from pg_locks where locktype = 'advisory' "
            "and pid = pg_backend_pid()"
        ).fetchall()
    assert dict(held) == locked
    assert str(lock) in PAGE


@rule("M15")
def test_what_is_printed_makes_the_schema_and_one_statement_leaves_nothing_behind(
    empty_database: str, tmp_path: Path
) -> None:
    def count(connection: Connection) -> dict[str, object]:
        query = "select count(*) from {}"
        return {
            catalog: connection.execute(query.format(catalog).encode()).fetchone()
            for catalog in CATALOGS
        }

    with psycopg.connect(empty_database, autocommit=True) as connection:
        before = count(connection)
        printed = CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database).ok("migrate", "--sql")
        with connection.transaction():
            connection.execute(printed.out.encode())
        app = rota.App(empty_database)

        @app.job
        def work() -> None: ...

        work.enqueue()
        assert app.drain().succeeded == 1
        app.close()
        [remove] = re.findall(r"```sql\n(DROP .*?)```", PAGE, re.DOTALL)
        connection.execute(remove.encode())
        assert count(connection) == before


@rule("M45")
def test_what_runs_with_the_owners_rights_acts_for_nobody_unasked(connection: Connection) -> None:
    found = connection.execute(
        "select proname, prosrc ~ 'caller(_check)?\\(' from pg_proc "
        "where pronamespace = 'rota'::regnamespace and prosecdef and "
        "exists (select from aclexplode(coalesce(proacl, acldefault('f', proowner))) a "
        "where a.grantee = 0)"
    ).fetchall()
    assert {name for name, asks in found if asks} - OF_TRIGGERS == ASK_WHO_CALLS
    assert {name for name, _ in found} == ASK_WHO_CALLS | TELL_OF_NO_JOB | OF_TRIGGERS


@rule("M45")
def test_the_one_setting_that_is_believed_is_checked_by_a_trigger(connection: Connection) -> None:
    read = connection.execute(
        "select distinct (regexp_matches(prosrc, 'current_setting\\(''(rota\\.\\w+)', 'g'))[1] "
        "from pg_proc where pronamespace = 'rota'::regnamespace"
    ).fetchall()
    assert read == [("rota.keys_taken",)]  # job_check looks for the key of each job
