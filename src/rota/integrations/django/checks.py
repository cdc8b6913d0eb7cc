"""Checks of `manage.py check`. With --database they ask the database, with --deploy they give the
hints of `rota check --types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register  # noqa: A004
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from rota.declare.checklist import find_hints
from rota.errors import RotaError, SchemaMissing, SchemaTooNew
from rota.integrations.django.django_app import find_app
from rota.integrations.django.schema import is_installed
from rota.store import migrate
from rota.store.drivers import find_driver

HINTS = {"repeated": "rota.W001", "timeout": "rota.W002", "expires": "rota.W003"}
"""The id of a hint, by its topic."""


@register("rota")
def check_settings(**_: Any) -> list[CheckMessage]:
    """Check the setting ROTA, and the database that it names."""
    try:
        app = find_app()
        find_driver(app.using)
    except (ImproperlyConfigured, RotaError) as error:
        return [Error(str(error), id="rota.E001")]
    atomic = [alias for alias, found in connections.settings.items() if found["ATOMIC_REQUESTS"]]
    if not atomic or app.using in atomic:
        return []
    text = (
        f"ATOMIC_REQUESTS is set on {', '.join(map(repr, atomic))} and not on {app.using!r}, where "
        "the jobs are: a request that fails rolls its rows back and not its jobs"
    )
    hint = f"Set it on {app.using!r} too, or let ROTA['using'] name the database of the rows."
    return [Warning(text, hint=hint, id="rota.W004")]


@register(Tags.database)
def check_schema(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the database has the schema of this release, and of all job types."""
    app = find_app()
    # The first `migrate` runs these checks too.
    if app.using not in (databases or ()) or not is_installed(app):
        return []
    try:
        app._run(migrate.check(app.schema, app._declarations.packages))
    except SchemaMissing as error:
        return [Warning(str(error), hint="Run `manage.py migrate`.", id="rota.W005")]
    except SchemaTooNew as error:
        return [Error(str(error), id="rota.E002")]
    return []


@register("rota", deploy=True)
def check_types(**_: Any) -> list[CheckMessage]:
    """List what may be missing from job types."""
    hints = find_hints(find_app()._declarations.types.values())
    return [
        Warning(
            f"{hint.job_type!r} {hint.message}",
            hint=hint.cure,
            obj=hint.place,
            id=HINTS[hint.about],
        )
        for hint in hints
    ]
