"""Makes, updates, empties and drops Rota's schema on a connection of Django."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from rota.errors import SchemaMissing
from rota.integrations.django.django_app import DjangoApp, find_app
from rota.store.migrate import as_sql, check

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState

KEPT = {
    "alert_rule", "definition", "idempotency_read", "installation", "job_type", "migration",
    "rate_limit", "release", "retention", "schedule", "stat_rollup",
}  # fmt: skip
"""The tables of declarations and settings; all other tables record what happened."""


class InstallSchema(Operation):
    """Make Rota's tables and functions, or only the missing ones: the SQL of the installed Rota
    that `rota migrate --sql` prints. Only on the alias of ROTA."""

    reversible = True

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Do nothing: no model has these tables."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: ProjectState
    ) -> None:
        """Run the SQL in the transaction of the migration."""
        app, connection = find_app(), schema_editor.connection
        if connection.alias == app.using:
            schema_editor.execute(make_script(app, schema_editor), params=None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: ProjectState
    ) -> None:
        """Drop the schema, with all jobs."""
        app = find_app()
        if schema_editor.connection.alias == app.using:
            schema_editor.execute(f"drop schema if exists {app.schema} cascade", params=None)

    def describe(self) -> str:
        return "Make or update Rota's tables and functions"


def make_script(app: DjangoApp, schema_editor: BaseDatabaseSchemaEditor) -> str:
    """Return the SQL that a database needs: `rota migrate` may have run some migrations already."""
    after = 0
    if not schema_editor.collect_sql and is_installed(app):
        numbers = f"select max(number) from {app.schema}.migration where package = ''"
        after = _fetch(app, numbers)[0][0] or 0
    return as_sql(app.schema, after, app._declarations.packages)


def is_installed(app: DjangoApp) -> bool:
    """Whether the database has Rota's schema of any release."""
    if connections[app.using].vendor != "postgresql":
        return False
    return bool(_fetch(app, f"select to_regclass('{app.schema}.migration') is not null")[0][0])


def declare(using: str, plan: Any = None, **_: Any) -> None:
    """Declare job types, limits and schedules after `manage.py migrate`, as `rota migrate` does.
    First make what the schema lacks: tables of new job types, or everything where the migrations of
    this app are disabled, as tests may do."""
    app = find_app()
    is_disabled = MigrationLoader.migrations_module("rota")[0] is None
    # `plan` is None after `flush`.
    if using != app.using or plan is None or not (is_disabled or is_installed(app)):
        return
    try:
        app._run(check(app.schema, app._declarations.packages))
    except SchemaMissing:
        with connections[using].schema_editor() as schema_editor:
            schema_editor.execute(make_script(app, schema_editor), params=None)
    app._sync(app._database, using)


def flush(app: DjangoApp) -> None:
    """Delete all jobs and their records; keep what is declared."""
    tables = _fetch(
        app,
        "select relname from pg_class where relkind in ('r', 'p') and not relispartition "
        f"and relnamespace = to_regnamespace('{app.schema}')",
    )
    names = sorted({name for [name] in tables} - KEPT)
    asked = [f"select '{name}' where exists (select from {app.schema}.{name})" for name in names]
    filled = [f"{app.schema}.{name}" for [name] in _fetch(app, " union all ".join(asked))]
    if filled:
        with connections[app.using].cursor() as cursor:
            cursor.execute(f"truncate {', '.join(filled)} cascade")  # to what is empty anyway


def _fetch(app: DjangoApp, text: str) -> list[tuple[Any, ...]]:
    with connections[app.using].cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())
