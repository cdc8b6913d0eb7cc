"""The demo's starting point: two new schemas, a few thousand rows and a directory of files."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from rota.demo.jobs import SCHEMA
from rota.errors import SchemaError
from rota.store import migrate

APP_SCHEMA = "rota_demo_app"
USERS = 2_000
SESSIONS, EXPIRED_SESSIONS = 3_000, 1_200
FILES, STALE_FILES = 300, 120
MARK = "Made by `rota demo`, which drops it when it starts."
LOCK = 1919906914

TABLES = """
create table rota_demo_app.app_user (
  id bigint generated always as identity primary key,
  email text not null unique,
  welcomed_at timestamptz
);
create table rota_demo_app.app_session (
  id bigint generated always as identity primary key,
  app_user bigint not null references rota_demo_app.app_user,
  expires_at timestamptz not null
);
create table rota_demo_app.app_report_page (
  report text not null,
  page int not null,
  users int not null,
  worker text not null,
  primary key (report, page)
);
"""
_OWN_APP_TABLES = frozenset(re.findall(r"create table rota_demo_app\.(\w+)", TABLES))
_PARTITION = re.compile(r"(job_history|attempt)_\d{8}")


def set_up(connection: psycopg.Connection, url: str, files: Path) -> None:
    """Create the schemas, the rows and the files.

    Raises:
        SchemaError: another demo is running, the schemas hold tables that are not the demo's, or
            the role may not create schemas.
    """
    _be_alone(connection)
    _refuse_others_tables(connection)
    try:
        _make_schemas(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(
            "the demo needs the right to CREATE schemas in the database, and to own its own: "
            f"{error.diag.message_primary}"
        ) from None
    except psycopg.errors.DependentObjectsStillExist as error:
        raise SchemaError(
            f"the demo does not drop what it did not create: {error.diag.message_primary}"
        ) from None
    migrate.migrate(url, SCHEMA)
    _fill(connection)
    make_files(files)


def _be_alone(connection: psycopg.Connection) -> None:
    # The lock lasts until the connection is closed.
    if not _value(connection, b"select pg_try_advisory_lock(%s)", [LOCK]):
        raise SchemaError("another `rota demo` is running in this database")


def _refuse_others_tables(connection: psycopg.Connection) -> None:
    others = [
        f"{schema}.{table}"
        for schema, table, marked in connection.execute(
            """select n.nspname, c.relname,
                 obj_description(n.oid, 'pg_namespace') is not distinct from %s
               from pg_class c
               join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = any (%s)
                 and c.relkind in ('r', 'p', 'v', 'm', 'f')
               order by 1, 2""",
            [MARK, [SCHEMA, APP_SCHEMA]],
        )
        if not (marked and _is_own(schema, table))
    ]
    if others:
        raise SchemaError(
            "the demo drops its schemas when it starts, and these tables in them are not its own: "
            f"{', '.join(others)}"
        )


def _is_own(schema: str, table: str) -> bool:
    if schema == APP_SCHEMA:
        return table in _OWN_APP_TABLES
    return table in _rota_tables() or _PARTITION.fullmatch(table) is not None


def _rota_tables() -> set[str]:
    return set(
        re.findall(
            r"^create (?:or replace )?(?:table(?: if not exists)?|view) (?:\w+\.)?(\w+)",
            migrate.as_sql(),
            re.MULTILINE,
        )
    )


def _make_schemas(connection: psycopg.Connection) -> None:
    with connection.transaction():
        for schema in (SCHEMA, APP_SCHEMA):
            name = sql.Identifier(schema)
            marked = (
                _value(
                    connection,
                    b"select obj_description(to_regnamespace(%s)::oid, 'pg_namespace')",
                    [schema],
                )
                == MARK
            )
            connection.execute(
                sql.SQL("drop schema if exists {} {}").format(
                    name, sql.SQL("cascade" if marked else "restrict")
                )
            )
            connection.execute(sql.SQL("create schema {}").format(name))
            connection.execute(
                sql.SQL("comment on schema {} is {}").format(name, sql.Literal(MARK))
            )
        connection.execute(TABLES)


def _fill(connection: psycopg.Connection) -> None:
    connection.execute(
        """insert into rota_demo_app.app_user (email)
           select format('user%%s@shop.example', n) from generate_series(1, %s) n""",
        [USERS],
    )
    connection.execute(
        """insert into rota_demo_app.app_session (app_user, expires_at)
           select
             1 + n %% %s,
             now() + case when n <= %s then interval '-1 hour' else interval '1 day' end
           from generate_series(1, %s) n""",
        [USERS, EXPIRED_SESSIONS, SESSIONS],
    )


def make_files(files: Path) -> None:
    """Create the outbox, temporary files, some of them two days old, and an upload with a wrong
    line."""
    (files / "outbox").mkdir()
    (files / "tmp").mkdir()
    two_days_ago = time.time() - 2 * 86_400
    for number in range(FILES):
        file = files / "tmp" / f"upload-{number:03}.tmp"
        file.write_bytes(b"\0" * 1_024)
        if number < STALE_FILES:
            os.utime(file, (two_days_ago, two_days_ago))
    (files / "contacts.csv").write_text("email\nada@import.example\nnobody\n")


def _value(connection: psycopg.Connection, query: bytes, params: list[Any]) -> Any:
    row = connection.execute(query, params).fetchone()
    return None if row is None else row[0]
