"""`rota migrate` and `rota sync`: run at each deploy, before the new code starts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import typer

from rota.app import App, Synced
from rota.cli.flags import flag, list_flags, option
from rota.cli.output import print_json
from rota.cli.target import AppOption, JsonOption, Place, connect, need_app
from rota.errors import UsageError
from rota.model.units import seconds
from rota.store import migrate as migrations
from rota.store.db import Database
from rota.store.drivers.own import translate_refusals

DAY_S = 86400.0
NAMES_MAX = 8
"""Most functions that are named; beyond it they are counted."""


def _keep(what: str, help: str, initially: str) -> Any:
    text = f"{help}. Unchanged if omitted; initially {initially}."
    return option(f"--keep-{what} DURATION", text)


@dataclass(frozen=True, slots=True)
class Changes:
    """Settings that `rota migrate` may write into the database."""

    restore: bool = flag(
        "--restore", "Put back functions, views and triggers that were changed by hand."
    )
    payload_bytes_max: int | None = option(
        "--payload-bytes-max BYTES",
        "Maximum size of a payload. Unchanged if omitted; initially 65,536.",
    )
    keep_history: str | None = _keep("history", "How long finished jobs are kept", "14d")
    keep_attempts: str | None = _keep("attempts", "How long failed attempts are kept", "90d")
    keep_dead: str | None = _keep(
        "dead", "Time after which unresolved dead jobs are archived", "90d"
    )
    keep_actions: str | None = _keep("actions", "How long the action log is kept", "90d")
    keep_figures: str | None = _keep("figures", "How long hourly statistics are kept", "400d")
    keep_effects: str | None = _keep(
        "effects", "How long effects and steps are kept after they are done", "90d"
    )
    archive: str | None = option(
        "--archive SCHEMA",
        "Move expired days of history and attempts to this schema instead of dropping "
        "them. Unchanged if omitted; initially they are dropped.",
    )
    no_archive: bool = flag("--no-archive", "Drop expired days again. The archive stays.")

    def read(self) -> dict[str, Any]:
        if self.archive is not None and self.no_archive:
            raise UsageError("give --archive or --no-archive, not both")
        if self.archive == "":
            raise UsageError(
                "--archive needs the name of a schema; --no-archive drops expired days"
            )
        keep = {
            name.removeprefix("keep_"): timedelta(seconds=seconds(text, name=name, least=DAY_S))
            for name, text in asdict(self).items()
            if name.startswith("keep_") and text is not None
        }
        archive = "" if self.no_archive else self.archive
        return {
            "restore": self.restore,
            "payload_bytes_max": self.payload_bytes_max,
            "keep": keep,
            "archive": archive,
        }


def migrate(
    place: Place,
    changes: Changes,
    sql: bool = flag("--sql", "Print the schema as SQL. Change nothing."),
    after: int = option(
        "--after NUMBER",
        "With --sql: omit the migrations up to and including this one.",
        default=0,
        min=0,
    ),
    check: bool = flag(
        "--check", "Change nothing. Exit 3 if something is missing or was changed by hand."
    ),
    as_json: JsonOption = False,
) -> None:
    """Create or update Rota's tables and functions. Safe to repeat, and to run concurrently.

    If there is an App, then declare its job types, limits and schedules, as `rota sync` does.
    """
    changed = changes.read()
    if (sql or check) and (given := list_flags(changes)):
        raise UsageError(f"{given[0]} changes the database; --sql and --check do not")
    if after and not sql:
        raise UsageError("--after needs --sql")
    if sql and check:
        raise UsageError("give --sql or --check, not both")
    if sql:
        name = place.find_schema()
        text = migrations.as_sql(name, after, place.find_packages())
        print_json({"schema": name, "sql": text}) if as_json else typer.echo(text)
    elif check:
        with place.session() as opened:
            packages = place.find_packages()
            opened.run(migrations.check(opened._database.schema, packages, server_text=True))
            _say(opened._database.schema, migrations.Migrated([], [], {}), as_json=as_json)
    else:
        database, owner = place.find_target()
        declares = owner is not None and bool(owner.types)  # it raises before anything is done
        did = migrations.migrate(
            database.url,
            database.schema,
            () if owner is None else owner._declarations.packages,
            **changed,
        )
        synced = _sync(owner, database) if owner is not None and declares else None
        _say(database.schema, did, synced, as_json=as_json)


def _sync(app: App, database: Database) -> Synced:
    with translate_refusals(), closing(database):
        return app._sync(database)


def _say(
    schema: str, did: migrations.Migrated, synced: Synced | None = None, *, as_json: bool
) -> None:
    if as_json:
        facts = {"applied": did.applied, "replaced": did.replaced, "newer": did.newer}
        print_json({"schema": schema, **facts, **({} if synced is None else _list(synced))})
        return
    parts = [f"applied {', '.join(did.applied)}"] if did.applied else []
    if did.replaced:
        parts.append(f"created or replaced {_names(did.replaced)}")
    if did.newer:
        release = migrations.newest(did.newer.values())
        parts.append(f"kept {_names(list(did.newer))} of the newer release {release}")
    typer.echo(f"schema {schema}: {'; '.join(parts) or 'up to date'}")
    if synced is not None:
        typer.echo(_describe(schema, synced))


def _list(synced: Synced) -> dict[str, list[str]]:
    return {"declared": synced.job_types, "schedules": synced.schedules}


def _describe(schema: str, synced: Synced) -> str:
    names, schedules = synced.job_types, synced.schedules
    more = f"; schedules ({len(schedules)}): {', '.join(schedules)}" if schedules else ""
    return f"schema {schema}: declared job types ({len(names)}): {', '.join(names)}{more}"


def _names(names: list[str]) -> str:
    if len(names) > NAMES_MAX:
        return f"{len(names)} functions, views and triggers"
    return ", ".join(names)


def sync(app: AppOption = None, as_json: JsonOption = False) -> None:
    """Declare the App's job types and schedules in the database.

    `rota migrate` does the same, and so does a worker when it starts. The database is the App's.
    """
    chosen = need_app(app)
    with connect(chosen._database) as opened:
        opened.run(migrations.check(chosen.schema, chosen._declarations.packages))
    with translate_refusals():
        synced = chosen.sync()
    if as_json:
        print_json({"schema": chosen.schema, **_list(synced)})
    else:
        typer.echo(_describe(chosen.schema, synced))
