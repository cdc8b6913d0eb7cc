"""Make and check the schema.

Two kinds of SQL make it. A *migration* makes tables, constraints and indexes. Migrations are
numbered, only go forward, and are never edited once released. A *definition* is a function, a view
or a trigger. It has its own file and is replaced whenever its text differs from the recorded text.
The release that wrote a text is recorded with it; an older release leaves texts of a newer release
alone.

All of it happens in one transaction under one lock, so ten processes that start at once apply each
file once. The files name no schema. A definition has the token `{schema}` before each name of the
schema's own, and its functions look up nothing else but pg_catalog: each gets a `search_path`,
unless its header says that it has none. So no function that another user has created takes the
place of ours, with its owner's rights. A name in their queries is a column before it is a variable.
Migrations run with the schema in front of the `search_path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from hashlib import sha256

import msgspec
import psycopg

from rota.declare.release import VERSION
from rota.declare.tables import Tables
from rota.errors import DeclarationError, SchemaError, SchemaMissing, SchemaTooNew
from rota.store.db import Database
from rota.store.driver import Operation, Query, Row
from rota.store.drivers.own import translate_errors
from rota.store.settings import change_settings, check_payload_limit
from rota.store.statements import Statements, check_schema, read_sql, sql_files

POSTGRESQL_MIN = 150_000
_TOKEN = "{schema}"
_REVOKE = re.compile(r"^revoke execute on function .*? from public;\n", re.MULTILINE | re.DOTALL)
_BODY = re.compile(r"^as \$\$$", re.MULTILINE)
_PATH = "search_path = pg_catalog, pg_temp"
_PATHLESS = re.compile(r"no\s+(?:--\s+)?search_path")
_OLDEST = re.compile(
    r"Oldest release that can live with\s+(?:--\s+)?this:\s+(?:--\s+)?(\d+(?:\.\d+)*)"
)

# "create schema if not exists" would need CREATE on the database even for an existing schema.
_BEGIN = """\
select
  set_config('rota.search_path', current_setting('search_path'), false),
  set_config('rota.check_function_bodies', current_setting('check_function_bodies'), false);
set search_path = pg_catalog, pg_temp;
do $$ begin if to_regnamespace('{schema}') is null then create schema {schema}; end if; end $$;
"""
_TABLES = """\
set search_path = {schema}, pg_temp;
set check_function_bodies = off;
create table if not exists migration (
  package text not null default '',              -- whose it is; empty: Rota's own
  number int, name text not null, oldest_release text not null, release text not null,
  applied_at timestamptz not null default now(), primary key (package, number));
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
# Before anything is looked up in the schema.
_REFUSE_OTHERS = """
do $others$ declare v_what text; v_cure text; begin
  select string_agg(o.what, '; '), string_agg(o.cure, '; ') into v_what, v_cure
  from ({others}) o;
  if v_what is not null then
    raise 'others could run code in schema {schema} with the rights of Rota''s owner: %: %',
      v_what, v_cure;
  end if;
end $others$;
"""
_ONCE = """\
do $once$ begin if not exists (
  select from {schema}.migration m where m.package = '{package}' and m.number = {number}
) then execute $package${text}$package$; end if; end $once$;
"""
"""A package's migration in a printed script: --after counts only Rota's own migrations."""
_SETTING = """\
do $setting$ begin if to_regprocedure('{schema}.{name}()') is null then
{text}
end if; end $setting$;
"""
_RESTORE = """\
do $restore$ declare v_forms text[]; begin
  execute $text${text}$text$;
exception when invalid_function_definition or invalid_table_definition or wrong_object_type then
  -- CREATE OR REPLACE cannot give it back its result.
  if to_regclass('{schema}."{name}"') is not null then
    drop view {schema}."{name}";
  end if;
  v_forms := array(
    select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = '{schema}'::regnamespace and p.proname = '{name}'
  );
  if cardinality(v_forms) > 1 then
    raise invalid_function_definition using message =
      'drop of these what is not Rota''s: ' || array_to_string(v_forms, '; ');
  elsif cardinality(v_forms) = 1 then
    execute 'drop routine ' || v_forms[1];
  end if;
  execute $text${text}$text$;
end $restore$;
"""
_END = """\
select {schema}.installation_record(false);
select {schema}.partitions_ensure(7);
update definition d
set server_hash = md5(t.text), server_major = current_setting('server_version_num')::int / 10000
from {schema}.definition_texts() t
where t.name = d.name and d.name in ({names});
select
  set_config('search_path', current_setting('rota.search_path'), false),
  set_config('check_function_bodies', current_setting('rota.check_function_bodies'), false);
"""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str
    package: str = ""
    """The package; empty: Rota's own migration."""

    @property
    def label(self) -> str:
        return f"{self.package}/{self.name}" if self.package else self.name

    @property
    def oldest_release(self) -> str:
        """The oldest release whose workers can run on the schema once this is applied."""
        found = _OLDEST.search(self.text)
        if self.package:
            return VERSION if found is None else found.group(1)
        if found is None:
            raise AssertionError(
                f"migration {self.name} does not say the oldest release that can live with it"
            )
        return found.group(1)


class Definition(msgspec.Struct, frozen=True):
    """One file of functions/, api/, views/ or triggers/."""

    name: str
    """The name that definition_texts uses: the file's name, and of a trigger `(trigger)` too."""
    text: str

    @property
    def hash(self) -> str:
        """The hash by which the database knows the text, whatever the schema's name."""
        return sha256(self.text.encode()).hexdigest()

    def replacement(self, schema: str, *, is_new: bool) -> str:
        """Return its statements. Only a new function is revoked from PUBLIC: later a DBA grants."""
        return name_schema(self.text if is_new else _REVOKE.sub("", self.text), schema)

    def record(self) -> str:
        """Return the statement that records which release wrote which text."""
        return (
            "insert into definition (name, hash, release) "
            f"values ('{self.name}', '{self.hash}', '{VERSION}')\n"
            "on conflict (name) do update set hash = excluded.hash, release = excluded.release, "
            "applied_at = now();"
        )


class Migrated(msgspec.Struct, frozen=True):
    """What `migrate` did."""

    applied: list[str]
    """The names of the migrations that it applied."""
    replaced: list[str]
    """The names of the functions, views and triggers that it made or replaced."""
    newer: dict[str, str]
    """Definitions that it left alone, each with the newer release that wrote its text."""


@cache
def migrations() -> tuple[Migration, ...]:
    return tuple(
        Migration(
            int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        )
        for file in sql_files("migrations")
    )


def _package_migrations(packages: Iterable[Tables]) -> list[Migration]:
    return [
        Migration(int(name[:4]), name, text, package.name)
        for package in packages
        for name, text in package.migrations.items()
    ]


def _package_definitions(packages: Iterable[Tables]) -> list[Definition]:
    """Raises DeclarationError if a package's names could be Rota's own."""
    for package in packages:
        own = next(
            (own.name for own in definitions() if own.name.startswith(f"{package.name}_")), None
        )
        if own is not None:
            raise DeclarationError(
                f"Tables {package.name}: Rota itself has {own}; take another name"
            )
    return [Definition(*both) for package in packages for both in package.functions.items()]


@cache
def definitions() -> tuple[Definition, ...]:
    """Return all definitions of this release, in the order in which they can be made.

    A view calls functions, a function may return the rows of a view, and a trigger needs a table.
    So functions come first, then views with the functions that return their rows, then triggers.
    """
    return tuple(
        Definition(f"{file.name.removesuffix('.sql')}{suffix}", _complete(read_sql(file)))
        for folder, suffix in (
            ("functions", ""),
            ("api", ""),
            ("views", ""),
            ("triggers", " (trigger)"),
        )
        for file in sql_files(folder)
    )


def _complete(text: str) -> str:
    """Write what all functions say of themselves before and behind the first line of the body."""
    before = "" if _PATHLESS.search(text) else f"set {_PATH}\n"
    behind = "\n#variable_conflict use_column" if "\nlanguage plpgsql" in text else ""
    return _BODY.sub(f"{before}as $${behind}", text, count=1)


def as_sql(schema: str = "rota", after: int = 0, packages: Sequence[Tables] = ()) -> str:
    """Return the migrations after number `after` and all definitions as SQL, for Alembic, Django or
    a DBA; for `packages` with all their migrations.

    Run it in one transaction, as the owner of the schema. It refuses a schema with definitions of a
    newer release, or in which others may create objects or have some, and leaves the session's
    `search_path` as it was.
    """
    title = f"-- Rota {VERSION}, migrations after {after:04}. Run it in one transaction.\n"
    missing = [migration for migration in migrations() if migration.number > after]
    missing += _package_migrations(packages)
    stale = [*definitions(), *_package_definitions(packages)]
    return title + "\n".join(_script(schema, missing, stale, is_printed=True))


def _script(
    schema: str,
    missing: Sequence[Migration],
    stale: Sequence[Definition],
    *,
    there: frozenset[str] = frozenset(),
    altered: frozenset[str] = frozenset(),
    is_printed: bool = False,
) -> Iterator[str]:
    check_schema(schema)
    yield _BEGIN.format(schema=schema)
    if is_printed:
        others = Statements(schema)["schema_others"].decode()
        yield _REFUSE_OTHERS.format(schema=schema, others=others)
    yield _TABLES.format(schema=schema)
    if is_printed:
        release = ",".join(str(part) for part in _version(VERSION))
        yield _REFUSE_NEWER.format(schema=schema, release=release, version=VERSION)
    for file in sql_files("settings"):
        name = file.name.removesuffix(".sql")
        text = name_schema(file.read_text(encoding="utf-8"), schema).rstrip()
        yield _SETTING.format(schema=schema, name=name, text=text)
    for migration in missing:
        text = f"{migration.text.rstrip().removesuffix(';')};\n{_record(migration)}\n"
        if migration.package and is_printed:
            facts = {"package": migration.package, "number": migration.number}
            text = _ONCE.format(schema=schema, text=text, **facts)
        yield text
    for definition in stale:
        name, is_altered = definition.name, definition.name in altered
        text = definition.replacement(schema, is_new=is_altered or name not in there).rstrip()
        if is_altered:
            text = _RESTORE.format(schema=schema, name=name, text=text)
        yield f"{text}\n{definition.record()}\n"
    names = ", ".join(f"'{definition.name}'" for definition in stale) or "''"
    yield _END.format(schema=schema, names=names)


def _record(migration: Migration) -> str:
    return (
        "insert into migration (package, number, name, oldest_release, release) "
        f"values ('{migration.package}', {migration.number}, '{migration.name}', "
        f"'{migration.oldest_release}', '{VERSION}');"
    )


def migrate(
    url: str,
    schema: str = "rota",
    packages: Sequence[Tables] = (),
    *,
    restore: bool = False,
    payload_bytes_max: int | None = None,
    keep: Mapping[str, timedelta] | None = None,
    archive: str | None = None,
) -> Migrated:
    """Apply what is missing, all of it or nothing.

    Args:
        packages: packages whose tables it makes too.
        restore: whether functions, views and triggers that were changed by hand are put back.
        payload_bytes_max: the new payload limit. Defaults to the current limit.
        keep: how long finished jobs (`history`), failed `attempts`, unresolved `dead` jobs,
            `actions` and `figures` are kept, at least a day. Defaults to the current periods.
        archive: the schema to which expired partitions move, which is created if it is missing;
            "": they are dropped. Defaults to the current setting.

    Raises:
        SchemaError: PostgreSQL is older than 15, read-only or not UTF8, a privilege is missing, the
            payload limit is out of range, the archive cannot be used, others may create objects in
            the schema or have objects there, it holds objects that no recorded migration made, or
            a function was changed by hand and is not restored.
        SchemaTooNew: a newer release that this release cannot work with has migrated the schema.
        DatabaseUnavailable: the database does not answer.
    """
    check_payload_limit(payload_bytes_max)
    database = Database(url, schema)
    with (
        translate_errors(),
        psycopg.connect(database.conninfo("migrate"), autocommit=True) as connection,
    ):
        refuse_unfit_server(connection)
        with _explain_refusals(connection, schema), connection.transaction():
            migrated = _apply(connection, schema, packages, restore)
            change_settings(connection, schema, payload_bytes_max, keep or {}, archive)
            return migrated


@contextmanager
def _explain_refusals(connection: psycopg.Connection, schema: str) -> Iterator[None]:
    """Raise SchemaError for a missing privilege, or for objects that are there already. The block
    ends its transaction: what is missing is looked up afterwards."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise _missing_privilege(connection, schema, error) from error
    except psycopg.errors.UndefinedColumn as error:
        raise SchemaError(
            f"schema {schema!r} was made by an unreleased Rota: DROP SCHEMA {schema} CASCADE and "
            "migrate again (a private server: `rota db reset`)"
        ) from error
    except (
        psycopg.errors.DuplicateFunction,
        psycopg.errors.DuplicateTable,
        psycopg.errors.DuplicateObject,
    ) as error:
        raise SchemaError(
            f"schema {schema!r} holds objects that Rota would make, but no record of the "
            f"migrations ({error.diag.message_primary}): if it came from a dump without data, "
            f"DROP SCHEMA {schema} CASCADE and migrate again; if it belongs to another "
            "program, use another name (--schema)"
        ) from error
    except (
        psycopg.errors.InvalidFunctionDefinition,
        psycopg.errors.InvalidTableDefinition,
        psycopg.errors.WrongObjectType,
        psycopg.errors.DependentObjectsStillExist,
    ) as error:
        raise SchemaError(
            f"schema {schema!r} has something else under a name of Rota, which cannot be replaced: "
            f"{error.diag.message_primary} {error.diag.message_hint or ''}".rstrip()
        ) from error


def _apply(
    connection: psycopg.Connection, schema: str, packages: Sequence[Tables], restore: bool = False
) -> Migrated:
    # An advisory lock, as the table may not exist yet. LOCAL: it ends with the transaction.
    connection.execute(
        "set local lock_timeout = '60s'; set local statement_timeout = 0; set local "
        "client_min_messages = warning; set local search_path = pg_catalog, pg_temp"
    )
    connection.execute("select pg_advisory_xact_lock(1919906912, hashtext(%s))", [schema])
    _refuse_others(schema, connection.execute(Statements(schema)["schema_others"]).fetchall())
    applied = _read(connection, schema, "migration")
    recorded = _read(connection, schema, "definition")
    missing = pending(applied, schema, packages)
    stale, newer = compare(recorded, packages)
    every = (*definitions(), *_package_definitions(packages))
    changed = _read_changed(connection, schema)
    altered = [made for made in every if made.name in changed and made.name not in newer]
    if not restore:
        _refuse_changed(schema, [made.name for made in altered if made not in stale])
    stale = [made for made in every if made in stale or made in altered]
    names = frozenset(made.name for made in altered)
    before = _list_functions(connection, schema, names)
    if missing or stale:
        there = frozenset(row[0] for row in recorded)
        script = _script(schema, missing, stale, there=there, altered=names)
        connection.execute("\n".join(script).encode())
    if strangers := before & _list_functions(connection, schema, names):
        # The check would take them for Rota's from now on.
        raise SchemaError(
            f"in schema {schema!r} others have made functions with names of Rota: look at them, "
            f"then DROP FUNCTION {', '.join(sorted(form for form, _ in strangers))}"
        )
    return Migrated(
        [migration.label for migration in missing], [definition.name for definition in stale], newer
    )


def _read_changed(connection: psycopg.Connection, schema: str) -> frozenset[str]:
    """Return the names of the definitions that were changed by hand; none without a schema."""
    there = connection.execute("select to_regprocedure(%s)", [f"{schema}.definition_texts()"])
    if there.fetchone() == (None,):
        return frozenset()
    found = connection.execute(Statements(schema)["definitions_changed"]).fetchall()
    return frozenset(row[0] for row in found)


def _list_functions(
    connection: psycopg.Connection, schema: str, names: frozenset[str]
) -> set[tuple[str, str]]:
    """Return all functions with these names, each with the transaction that wrote it."""
    found = connection.execute(
        "select p.oid::regprocedure::text, p.xmin::text from pg_proc p join pg_namespace n "
        "on n.oid = p.pronamespace where n.nspname = %s and p.proname = any (%s)",
        [schema, sorted(names)],
    )
    return {(form, written) for form, written in found.fetchall()}


def _refuse_changed(schema: str, names: Sequence[str]) -> None:
    if names:
        raise SchemaError(
            f"in schema {schema!r} these were changed since `rota migrate`: {', '.join(names)}. "
            "`rota migrate --restore` puts them back as this release has them"
        )


def compare(
    recorded: Sequence[Row], packages: Sequence[Tables] = ()
) -> tuple[list[Definition], dict[str, str]]:
    """Compare this release's definitions with rows of (name, hash, release). Return the definitions
    to make or to replace, and by name the newer release of each that is to be left alone."""
    there = {name: (hash_, release) for name, hash_, release, *_ in recorded}
    stale: list[Definition] = []
    newer: dict[str, str] = {}
    for definition in (*definitions(), *_package_definitions(packages)):
        hash_, release = there.get(definition.name, (None, VERSION))
        if hash_ == definition.hash:
            continue
        if _version(release) > _version(VERSION):
            newer[definition.name] = release
        else:
            stale.append(definition)
    return stale, newer


def pending(
    applied: Sequence[Row], schema: str, packages: Sequence[Tables] = ()
) -> list[Migration]:
    """Return the migrations that are not applied, given rows of (number, name, oldest release,
    package). Raises SchemaTooNew if a row is not for this release."""
    newest_of = {
        migration.package: migration.number
        for migration in (*migrations(), *_package_migrations(packages))
    }
    for number, name, oldest, package in applied:
        newest_here = newest_of.get(package, number)  # of a package that is not here: no matter
        if number > newest_here and _version(oldest) > _version(VERSION):
            raise SchemaTooNew(
                f"schema {schema!r} has migration {name}, which needs Rota {oldest} or newer; this "
                f"is {VERSION}: install the newer release"
            )
    there = {(package, number) for number, _, _, package in applied}
    every = (*migrations(), *_package_migrations(packages))
    return [migration for migration in every if (migration.package, migration.number) not in there]


def check(
    schema: str, packages: Sequence[Tables] = (), *, server_text: bool = False
) -> Operation[None]:
    """Raise SchemaMissing if the schema lacks something of this release or of the packages,
    SchemaTooNew if it is too new.

    With `server_text`, the server's own text of each function, view and trigger is compared too:
    SchemaError names changes by hand, others who may create objects in the schema, and their
    objects.
    """
    missing = pending((yield Query("migrations")), schema, packages)
    if missing:
        names = ", ".join(migration.label for migration in missing)
        raise SchemaMissing(f"schema {schema!r} lacks {names}: run `rota migrate`")
    stale, _ = compare((yield Query("definitions")), packages)
    if stale:
        names = ", ".join(definition.name for definition in stale)
        raise SchemaMissing(f"schema {schema!r} lacks this release's {names}: run `rota migrate`")
    if server_text:
        _refuse_others(schema, (yield Query("schema_others")))
        _refuse_changed(schema, [row[0] for row in (yield Query("definitions_changed"))])


def refuse_unfit_server(connection: psycopg.Connection) -> None:
    info = connection.info
    if info.server_version < POSTGRESQL_MIN:
        raise SchemaError(
            f"PostgreSQL {info.server_version // 10_000} is too old: Rota needs 15 or newer"
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"database {info.dbname!r} has encoding {encoding}: Rota needs UTF8 (CREATE DATABASE … "
            "ENCODING 'UTF8' TEMPLATE template0)"
        )
    row = connection.execute(
        "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool"
    ).fetchone()
    if row is not None and row[0]:
        raise SchemaError(
            f"the server at {info.host or 'the local socket'} is read-only (a standby?): connect "
            "to the primary"
        )


def _refuse_others(schema: str, rows: Sequence[Row]) -> None:
    """Raise SchemaError for rows of `schema_others`, (what, cure) each."""
    if rows:
        raise SchemaError(
            f"others could run code in schema {schema!r} with the rights of Rota's owner: "
            f"{'; '.join(row[0] for row in rows)}. As a superuser: "
            f"{'; '.join(row[1] for row in rows)}. Or use a schema of Rota's own (--schema)"
        )


def _read(connection: psycopg.Connection, schema: str, table: str) -> Sequence[Row]:
    """Return the rows of `migration` or `definition`; none: there is no such table yet."""
    found = connection.execute(
        "select to_regclass(%s) is not null", [f"{schema}.{table}"]
    ).fetchone()
    if found is None or not found[0]:
        return ()
    return connection.execute(Statements(schema)[f"{table}s"]).fetchall()


def _missing_privilege(
    connection: psycopg.Connection, schema: str, error: psycopg.Error
) -> SchemaError:
    user = connection.info.user
    row = connection.execute(
        "select pg_get_userbyid(nspowner) from pg_namespace where nspname = %s", [schema]
    ).fetchone()
    if row is not None:
        return SchemaError(
            f"role {user!r} does not own schema {schema!r}: run `rota migrate` as its owner, "
            f"{row[0]!r} ({error.diag.message_primary})"
        )
    return SchemaError(
        f"role {user!r} may not create schema {schema!r}: GRANT CREATE ON DATABASE "
        f"{connection.info.dbname} TO {user} ({error.diag.message_primary})"
    )


def name_schema(text: str, schema: str) -> str:
    """Return a definition's text with the schema's name for its token."""
    return text.replace(_TOKEN, schema)


def newest(releases: Iterable[str]) -> str:
    return max(releases, key=_version)


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)
