"""Make and check the schema. Migrations are numbered, forward-only, and never edited once released; ten that start at once apply each once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files

import psycopg
from psycopg import sql

from rota.errors import SchemaError, SchemaMissing, SchemaTooNew
from rota.jsonb import PAYLOAD_BYTES_LEAST
from rota.release import VERSION
from rota.store.db import Database
from rota.store.driver import Operation, Query, Row
from rota.store.drivers.own import tell_trouble
from rota.store.statements import Statements, in_schema

POSTGRESQL_MIN = 140_000
PAYLOAD_BYTES_MOST = 16_777_216
_OLDEST = re.compile(r"Oldest release that can live with\s+(?:--\s+)?this:\s+(?:--\s+)?(\d+(?:\.\d+)*)")

# Not "create schema if not exists": that asks for CREATE on the database even where a DBA has made the schema already.
BEFORE = """do $$ begin if to_regnamespace('rota') is null then create schema rota; end if; end $$;
create table if not exists rota.migration (
  number int primary key, name text not null, oldest_release text not null, release text not null, applied_at timestamptz not null default now());
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of migrations/."""

    number: int
    name: str
    text: str

    @property
    def oldest_release(self) -> str:
        """The oldest release whose workers can run on the schema once this is applied."""
        found = _OLDEST.search(self.text)
        if found is None:
            raise AssertionError(f"migration {self.name} does not say the oldest release that can live with it")
        return found.group(1)


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this release, in order."""
    found = [entry for entry in files(__package__).joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    return tuple(
        Migration(int(entry.name[:4]), entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    )


def as_sql(schema: str = "rota", after: int = 0) -> str:
    """The migrations after number `after` as plain SQL, for Alembic, Django or a DBA. Run it in one transaction, as the owner of the schema to be."""
    parts = [f"-- Rota {VERSION}, migrations after {after:04}. Run it in one transaction.\n{BEFORE}"]
    parts += [f"{migration.text.rstrip()}\n{_record(migration)}\n" for migration in migrations() if migration.number > after]
    return in_schema("\n".join(parts), schema)


def _record(migration: Migration) -> str:
    return (
        "insert into rota.migration (number, name, oldest_release, release) "
        f"values ({migration.number}, '{migration.name}', '{migration.oldest_release}', '{VERSION}');"
    )


def migrate(
    url: str, schema: str = "rota", *, payload_bytes_max: int | None = None, keep: Mapping[str, timedelta] | None = None
) -> list[str]:
    """Apply what is missing, all of it or nothing; return the names of what was applied.

    Args:
        payload_bytes_max: the payload limit from now on. Defaults to what it is.
        keep: for how long `history`, `attempts` or `dead` jobs are kept from now on, at least a day. Defaults to what it is.

    Raises:
        SchemaError: PostgreSQL is older than 14, read-only or not UTF8, a privilege is missing, the payload limit is out of range, or the
            schema holds what no migration is noted for.
        SchemaTooNew: a newer release that this one cannot live with has migrated the schema.
        DatabaseUnavailable: the database does not answer.
    """
    if payload_bytes_max is not None and not PAYLOAD_BYTES_LEAST <= payload_bytes_max <= PAYLOAD_BYTES_MOST:
        raise SchemaError(
            f"the payload limit must be from {PAYLOAD_BYTES_LEAST:,} to {PAYLOAD_BYTES_MOST:,} bytes, not {payload_bytes_max:,}"
        )
    database = Database(url, schema)
    with tell_trouble(), psycopg.connect(database.conninfo("migrate"), autocommit=True) as connection:
        refuse_unfit_server(connection)
        try:
            with connection.transaction():
                return _apply(connection, schema, payload_bytes_max, keep or {})
        except psycopg.errors.InsufficientPrivilege as error:
            raise _missing_privilege(connection, schema, error) from error
        except (psycopg.errors.DuplicateFunction, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject) as error:
            raise SchemaError(
                f"schema {schema!r} holds what Rota would make, but not the rows that say which migrations made it"
                f" ({error.diag.message_primary}): if it came from a dump without data, DROP SCHEMA {schema} CASCADE and migrate again;"
                " if it is another program's, take another name (--schema)"
            ) from error


def _apply(connection: psycopg.Connection, schema: str, payload_bytes_max: int | None, keep: Mapping[str, timedelta]) -> list[str]:
    # An advisory lock and not one on the table: the table is not there yet. LOCAL, so that it ends with the transaction.
    connection.execute("set local lock_timeout = '60s'; set local statement_timeout = 0; set local client_min_messages = warning")
    connection.execute("select pg_advisory_xact_lock(1919906912, hashtext(%s))", [schema])
    missing = pending(_applied(connection, schema), schema)
    if missing:
        connection.execute(as_sql(schema, after=missing[0].number - 1).encode())
    if payload_bytes_max is not None:
        connection.execute(
            sql.SQL("create or replace function {}.payload_bytes_max() returns int language sql immutable parallel safe as {}").format(
                sql.Identifier(schema), sql.Literal(f"select {payload_bytes_max}")
            )
        )
    for what, period in keep.items():
        connection.execute(
            sql.SQL("insert into {}.retention (what, keep) values (%s, %s) on conflict (what) do update set keep = excluded.keep").format(
                sql.Identifier(schema)
            ),
            [what, period],
        )
    return [migration.name for migration in missing]


def pending(applied: Sequence[Row], schema: str) -> list[Migration]:
    """The migrations that are not among those applied: rows of (number, name, oldest release). Raises SchemaTooNew when one is not for this release."""
    for number, name, oldest in applied:
        if number > migrations()[-1].number and _version(oldest) > _version(VERSION):
            raise SchemaTooNew(
                f"schema {schema!r} has migration {name}, which needs Rota {oldest} or newer; this is {VERSION}: install the newer release"
            )
    numbers = {row[0] for row in applied}
    return [migration for migration in migrations() if migration.number not in numbers]


def check(schema: str) -> Operation[None]:
    """Raise SchemaMissing when a migration of this release is missing, SchemaTooNew when the schema is too new for it."""
    missing = pending((yield Query("migrations")), schema)
    if missing:
        names = ", ".join(migration.name for migration in missing)
        raise SchemaMissing(f"schema {schema!r} lacks {names}: run `rota migrate`")


def refuse_unfit_server(connection: psycopg.Connection) -> None:
    """Raise SchemaError for a server that cannot carry Rota."""
    info = connection.info
    if info.server_version < POSTGRESQL_MIN:
        raise SchemaError(f"PostgreSQL {info.server_version // 10_000} is too old: Rota needs 14 or newer")
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"database {info.dbname!r} has encoding {encoding}: Rota needs UTF8 (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
        )
    row = connection.execute("select pg_is_in_recovery() or current_setting('transaction_read_only')::bool").fetchone()
    if row is not None and row[0]:
        raise SchemaError(f"the server at {info.host or 'the local socket'} is read-only (a standby?): connect to the primary")


def _applied(connection: psycopg.Connection, schema: str) -> Sequence[Row]:
    found = connection.execute("select to_regclass(%s) is not null", [f"{schema}.migration"]).fetchone()
    if found is None or not found[0]:
        return ()
    return connection.execute(Statements(schema)["migrations"]).fetchall()


def _missing_privilege(connection: psycopg.Connection, schema: str, error: psycopg.Error) -> SchemaError:
    user = connection.info.user
    row = connection.execute("select pg_get_userbyid(nspowner) from pg_namespace where nspname = %s", [schema]).fetchone()
    if row is not None:
        return SchemaError(
            f"role {user!r} does not own schema {schema!r}: run `rota migrate` as its owner, {row[0]!r} ({error.diag.message_primary})"
        )
    return SchemaError(
        f"role {user!r} may not create schema {schema!r}: GRANT CREATE ON DATABASE {connection.info.dbname} TO {user} ({error.diag.message_primary})"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
