"""Make and check the schema.

Two kinds of SQL make it. A *migration* makes tables, constraints and indexes; migrations are numbered, go
forward only, and are never edited once released. A *definition* is a function, a view or a trigger: it
stands in a file of its own and is replaced whenever its text differs from what the database recorded. With
each recorded text stands the release that wrote it, and an older release leaves the texts of a newer one
alone.

All of it happens in one transaction under one lock, so ten that start at once apply each file once. The
files name no schema: they are run with the schema in front of the `search_path`, and each function keeps
that path (`set search_path from current`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import sha256

import psycopg
from psycopg import sql

from rota.declare.jsonb import PAYLOAD_BYTES_LEAST
from rota.declare.release import VERSION
from rota.errors import SchemaError, SchemaMissing, SchemaTooNew
from rota.store.db import Database
from rota.store.driver import Operation, Query, Row
from rota.store.drivers.own import tell_trouble
from rota.store.statements import Statements, check_schema, sql_files

POSTGRESQL_MIN = 140_000
PAYLOAD_BYTES_MOST = 16_777_216
_REVOKE = re.compile(r"^revoke execute on function .*? from public;\n", re.MULTILINE | re.DOTALL)
_OLDEST = re.compile(
    r"Oldest release that can live with\s+(?:--\s+)?this:\s+(?:--\s+)?(\d+(?:\.\d+)*)"
)

# Not "create schema if not exists": that asks for CREATE on the database even where a DBA has made the
# schema already.
_BEGIN = """\
do $$ begin if to_regnamespace('{schema}') is null then create schema {schema}; end if; end $$;
select
  set_config('rota.search_path', current_setting('search_path'), false),
  set_config('rota.check_function_bodies', current_setting('check_function_bodies'), false);
set search_path = {schema}, pg_temp;
set check_function_bodies = off;
create table if not exists migration (
  number int primary key, name text not null, oldest_release text not null, release text not null,
  applied_at timestamptz not null default now());
create table if not exists definition (
  name text primary key,
  hash text not null,                            -- of the file that made it
  release text not null,                         -- whose file that was
  applied_at timestamptz not null default now(),
  server_hash text,                              -- of what the server said of it then, ...
  server_major int);                             -- ... in the words of this PostgreSQL
"""
_REFUSE_NEWER = r"""
do $$ begin
  if exists (
    select from definition d
    cross join regexp_match(d.release, '^(\d+)(?:\.(\d+))?(?:\.(\d+))?') m
    where array[m[1]::int, coalesce(m[2]::int, 0), coalesce(m[3]::int, 0)] > '{{{release}}}'
  ) then
    raise 'schema {schema} has functions of a newer release than this script of {version}';
  end if;
end $$;
"""
_SETTING = """\
do $setting$ begin if to_regprocedure('{schema}.{name}()') is null then
{text}
end if; end $setting$;
"""
_END = """\
select stamp_missing();
select partitions_ensure(7);
update definition d
set server_hash = md5(t.text), server_major = current_setting('server_version_num')::int / 10000
from definition_texts() t
where t.name = d.name and d.name in ({names});
select
  set_config('search_path', current_setting('rota.search_path'), false),
  set_config('check_function_bodies', current_setting('rota.check_function_bodies'), false);
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
            raise AssertionError(
                f"migration {self.name} does not say the oldest release that can live with it"
            )
        return found.group(1)


@dataclass(frozen=True, slots=True)
class Definition:
    """One file of functions/, api/, views/ or triggers/."""

    name: str
    """As definition_texts names it: a trigger has the name of its function, and says what it is."""
    text: str

    @property
    def hash(self) -> str:
        """By which the text is known in the database."""
        return sha256(self.text.encode()).hexdigest()

    def replacement(self, *, is_new: bool) -> str:
        """The statements that make it. Only a new function is taken from PUBLIC: later grants are a DBA's."""
        return self.text if is_new else _REVOKE.sub("", self.text)

    def record(self) -> str:
        """The statement that writes down which text of which release the database has."""
        return (
            "insert into definition (name, hash, release) "
            f"values ('{self.name}', '{self.hash}', '{VERSION}')\n"
            "on conflict (name) do update set hash = excluded.hash, release = excluded.release, applied_at = now();"
        )


@dataclass(frozen=True, slots=True)
class Migrated:
    """What `migrate` did."""

    applied: list[str]
    """The names of the migrations that it applied."""
    replaced: list[str]
    """The names of the functions, views and triggers that it made or replaced."""
    newer: dict[str, str]
    """Those that it left alone, each with the newer release that wrote its text."""


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this release, in order."""
    return tuple(
        Migration(
            int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        )
        for file in sql_files("migrations")
    )


@cache
def definitions() -> tuple[Definition, ...]:
    """All definitions of this release, in the order in which they can be made.

    A view calls functions, a function may return the rows of a view, and a trigger needs a table: so
    functions come first, then views with the functions that return their rows, then triggers.
    """
    return tuple(
        Definition(f"{file.name.removesuffix('.sql')}{suffix}", file.read_text(encoding="utf-8"))
        for folder, suffix in (
            ("functions", ""),
            ("api", ""),
            ("views", ""),
            ("triggers", " (trigger)"),
        )
        for file in sql_files(folder)
    )


def as_sql(schema: str = "rota", after: int = 0) -> str:
    """The migrations after number `after` and all definitions as plain SQL, for Alembic, Django or a DBA.

    Run it in one transaction, as the owner of the schema to be. It refuses a schema with definitions of a
    newer release, and leaves the session's `search_path` as it was.
    """
    title = f"-- Rota {VERSION}, migrations after {after:04}. Run it in one transaction.\n"
    missing = [migration for migration in migrations() if migration.number > after]
    return title + "\n".join(_script(schema, missing, definitions(), refuse_newer=True))


def _script(
    schema: str,
    missing: Sequence[Migration],
    stale: Sequence[Definition],
    *,
    there: frozenset[str] = frozenset(),
    refuse_newer: bool = False,
) -> Iterator[str]:
    check_schema(schema)
    yield _BEGIN.format(schema=schema)
    if refuse_newer:
        release = ",".join(str(part) for part in _version(VERSION))
        yield _REFUSE_NEWER.format(schema=schema, release=release, version=VERSION)
    for file in sql_files("settings"):
        name, text = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8").rstrip()
        yield _SETTING.format(schema=schema, name=name, text=text)
    for migration in missing:
        yield f"{migration.text.rstrip()}\n{_record(migration)}\n"
    for definition in stale:
        text = definition.replacement(is_new=definition.name not in there)
        yield f"{text.rstrip()}\n{definition.record()}\n"
    yield _END.format(names=", ".join(f"'{definition.name}'" for definition in stale) or "''")


def _record(migration: Migration) -> str:
    return (
        "insert into migration (number, name, oldest_release, release) "
        f"values ({migration.number}, '{migration.name}', '{migration.oldest_release}', '{VERSION}');"
    )


def migrate(
    url: str,
    schema: str = "rota",
    *,
    payload_bytes_max: int | None = None,
    keep: Mapping[str, timedelta] | None = None,
) -> Migrated:
    """Apply what is missing, all of it or nothing.

    Args:
        payload_bytes_max: the payload limit from now on. Defaults to what it is.
        keep: for how long `history`, `attempts` or `dead` jobs are kept from now on, at least a day. Defaults to what it is.

    Raises:
        SchemaError: PostgreSQL is older than 14, read-only or not UTF8, a privilege is missing, the payload limit is out of range, or the
            schema holds what no migration is noted for.
        SchemaTooNew: a newer release that this one cannot live with has migrated the schema.
        DatabaseUnavailable: the database does not answer.
    """
    if (
        payload_bytes_max is not None
        and not PAYLOAD_BYTES_LEAST <= payload_bytes_max <= PAYLOAD_BYTES_MOST
    ):
        raise SchemaError(
            f"the payload limit must be from {PAYLOAD_BYTES_LEAST:,} to {PAYLOAD_BYTES_MOST:,} bytes, not {payload_bytes_max:,}"
        )
    database = Database(url, schema)
    with (
        tell_trouble(),
        psycopg.connect(database.conninfo("migrate"), autocommit=True) as connection,
    ):
        refuse_unfit_server(connection)
        try:
            with connection.transaction():
                return _apply(connection, schema, payload_bytes_max, keep or {})
        except psycopg.errors.InsufficientPrivilege as error:
            raise _missing_privilege(connection, schema, error) from error
        except (
            psycopg.errors.DuplicateFunction,
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateObject,
        ) as error:
            raise SchemaError(
                f"schema {schema!r} holds what Rota would make, but not the rows that say which migrations made it"
                f" ({error.diag.message_primary}): if it came from a dump without data, DROP SCHEMA {schema} CASCADE and migrate again;"
                " if it is another program's, take another name (--schema)"
            ) from error


def _apply(
    connection: psycopg.Connection,
    schema: str,
    payload_bytes_max: int | None,
    keep: Mapping[str, timedelta],
) -> Migrated:
    # An advisory lock and not one on the table: the table is not there yet. LOCAL, so that it ends with the transaction.
    connection.execute(
        "set local lock_timeout = '60s'; set local statement_timeout = 0; set local client_min_messages = warning"
    )
    connection.execute("select pg_advisory_xact_lock(1919906912, hashtext(%s))", [schema])
    applied, recorded = _read_applied(connection, schema), _read_definitions(connection, schema)
    if applied and recorded is None:
        raise SchemaError(
            f"schema {schema!r} was made before functions left the migrations, by a Rota that was never released:"
            f" DROP SCHEMA {schema} CASCADE and migrate again (a private server: `rota db reset`)"
        )
    recorded = recorded or ()
    missing = pending(applied, schema)
    stale, newer = compare(recorded)
    if missing or stale:
        there = frozenset(row[0] for row in recorded)
        connection.execute("\n".join(_script(schema, missing, stale, there=there)).encode())
    if payload_bytes_max is not None:
        connection.execute(
            sql.SQL(
                "create or replace function {}.payload_bytes_max() returns int language sql immutable parallel safe as {}"
            ).format(sql.Identifier(schema), sql.Literal(f"select {payload_bytes_max}"))
        )
    for what, period in keep.items():
        connection.execute(
            sql.SQL(
                "insert into {}.retention (what, keep) values (%s, %s) on conflict (what) do update set keep = excluded.keep"
            ).format(sql.Identifier(schema)),
            [what, period],
        )
    return Migrated(
        [migration.name for migration in missing], [definition.name for definition in stale], newer
    )


def compare(recorded: Sequence[Row]) -> tuple[list[Definition], dict[str, str]]:
    """Compare this release's definitions with rows of (name, hash, release).

    Returns those to make or to replace, and by name the newer release of each that is to be left alone.
    """
    there = {name: (hash_, release) for name, hash_, release, *_ in recorded}
    stale: list[Definition] = []
    newer: dict[str, str] = {}
    for definition in definitions():
        hash_, release = there.get(definition.name, (None, VERSION))
        if hash_ == definition.hash:
            continue
        if _version(release) > _version(VERSION):
            newer[definition.name] = release
        else:
            stale.append(definition)
    return stale, newer


def pending(applied: Sequence[Row], schema: str) -> list[Migration]:
    """The migrations that are not among those applied: rows of (number, name, oldest release). Raises SchemaTooNew when one is not for this release."""
    for number, name, oldest in applied:
        if number > migrations()[-1].number and _version(oldest) > _version(VERSION):
            raise SchemaTooNew(
                f"schema {schema!r} has migration {name}, which needs Rota {oldest} or newer; this is {VERSION}: install the newer release"
            )
    numbers = {row[0] for row in applied}
    return [migration for migration in migrations() if migration.number not in numbers]


def check(schema: str, *, server_text: bool = False) -> Operation[None]:
    """Raise SchemaMissing when the schema lacks something of this release, SchemaTooNew when it is too new for it.

    With `server_text`, what the server itself says of each function, view and trigger is compared as well:
    SchemaError names those that somebody has changed by hand.
    """
    missing = pending((yield Query("migrations")), schema)
    if missing:
        names = ", ".join(migration.name for migration in missing)
        raise SchemaMissing(f"schema {schema!r} lacks {names}: run `rota migrate`")
    stale, _ = compare((yield Query("definitions")))
    if stale:
        names = ", ".join(definition.name for definition in stale)
        raise SchemaMissing(f"schema {schema!r} lacks this release's {names}: run `rota migrate`")
    if server_text:
        changed = [row[0] for row in (yield Query("definitions_changed"))]
        if changed:
            raise SchemaError(
                f"in schema {schema!r} these are no longer as `rota migrate` made them: {', '.join(changed)}. To make them"
                f" anew, delete the rows of these names from {schema}.definition and run `rota migrate`"
            )


def refuse_unfit_server(connection: psycopg.Connection) -> None:
    """Raise SchemaError for a server that cannot carry Rota."""
    info = connection.info
    if info.server_version < POSTGRESQL_MIN:
        raise SchemaError(
            f"PostgreSQL {info.server_version // 10_000} is too old: Rota needs 14 or newer"
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"database {info.dbname!r} has encoding {encoding}: Rota needs UTF8 (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
        )
    row = connection.execute(
        "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool"
    ).fetchone()
    if row is not None and row[0]:
        raise SchemaError(
            f"the server at {info.host or 'the local socket'} is read-only (a standby?): connect to the primary"
        )


def _read_applied(connection: psycopg.Connection, schema: str) -> Sequence[Row]:
    found = connection.execute(
        "select to_regclass(%s) is not null", [f"{schema}.migration"]
    ).fetchone()
    if found is None or not found[0]:
        return ()
    return connection.execute(Statements(schema)["migrations"]).fetchall()


def _read_definitions(connection: psycopg.Connection, schema: str) -> Sequence[Row] | None:
    """Rows of `definition`; None: there is no such table."""
    found = connection.execute(
        "select to_regclass(%s) is not null", [f"{schema}.definition"]
    ).fetchone()
    if found is None or not found[0]:
        return None
    return connection.execute(Statements(schema)["definitions"]).fetchall()


def _missing_privilege(
    connection: psycopg.Connection, schema: str, error: psycopg.Error
) -> SchemaError:
    user = connection.info.user
    row = connection.execute(
        "select pg_get_userbyid(nspowner) from pg_namespace where nspname = %s", [schema]
    ).fetchone()
    if row is not None:
        return SchemaError(
            f"role {user!r} does not own schema {schema!r}: run `rota migrate` as its owner, {row[0]!r} ({error.diag.message_primary})"
        )
    return SchemaError(
        f"role {user!r} may not create schema {schema!r}: GRANT CREATE ON DATABASE {connection.info.dbname} TO {user} ({error.diag.message_primary})"
    )


def newest(releases: Iterable[str]) -> str:
    """The newest of these releases."""
    return max(releases, key=_version)


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)
