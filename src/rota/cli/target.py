"""Which App and which database a command works with."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from rota import embedded
from rota.app import App
from rota.declare.config import find_url
from rota.declare.load import load
from rota.errors import ConfigurationError
from rota.store.db import Database
from rota.store.driver import Operation
from rota.store.errors import is_of_pooler

T = TypeVar("T")

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        help="Your rota.App. Defaults to ROTA_APP, else to app in \\[tool.rota] of pyproject.toml.",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The database. Defaults to the App's, else ROTA_DATABASE_URL, else a private one in .rota.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="NAME",
        help="Where Rota's tables are. Defaults to the App's, else ROTA_SCHEMA, else rota.",
    ),
]
WhyOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The reason, kept with who did it.")
]
ByOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who does it. Defaults to user@host.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Session:
    """A database and one connection to it, for the length of a command."""

    database: Database
    connection: Any

    def run(self, operation: Operation[T], *, atomic: bool = False) -> T:
        """Run a store operation; `atomic`: in one transaction, so that an error means that nothing was done."""
        return self.database.run(operation, self.connection, atomic=atomic)


@contextmanager
def session(
    app: str | None = None, url: str | None = None, schema: str | None = None
) -> Iterator[Session]:
    """Connect to what the options say, as the App does where one is named. Raises ConfigurationError and DatabaseUnavailable at once, not after the
    patience of a pool."""
    owner = _owner(app, url, schema)
    database = _database(owner, url, schema)
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(connect(database))
        except ConfigurationError as error:
            if owner is not None or not is_of_pooler(error):
                raise
            opened = stack.enter_context(
                connect(database.strip_settings())
            )  # nobody was there to say notify=False
        yield opened


@contextmanager
def connect(database: Database) -> Iterator[Session]:
    """Connect to a database for a block."""
    with database.open_connection("cli") as connection:
        yield Session(database, connection)


def find_database(app: str | None, url: str | None, schema: str | None) -> Database:
    """Return the database that the options say, to be connected to as the App does where one is named."""
    return _database(_owner(app, url, schema), url, schema)


def target(app: str | None, url: str | None, schema: str | None) -> tuple[str, str]:
    """Return the URL and the schema that the options say: what is not given is the App's, where one is named, else the environment's."""
    return _target(_owner(app, url, schema), url, schema)


def _owner(app: str | None, url: str | None, schema: str | None) -> App | None:
    """The App. With a URL and a schema none is needed, so that a broken one keeps nobody from looking."""
    return find_app(app) if app or not (url and schema) else None


def _target(owner: App | None, url: str | None, schema: str | None) -> tuple[str, str]:
    chosen = find_url(url) if url or owner is None else owner.url
    return chosen or embedded.start(), schema_of(owner, schema)


def _database(owner: App | None, url: str | None, schema: str | None) -> Database:
    return Database(*_target(owner, url, schema), notify=owner is None or owner.notify)


def schema_of(app: App | None, schema: str | None) -> str:
    """Return the schema of a command."""
    return schema or (app.schema if app else os.environ.get("ROTA_SCHEMA") or "rota")


def need_app(reference: str | None) -> App:
    """Return the App. Raises ConfigurationError when none is named."""
    app = find_app(reference)
    if app is None:
        raise ConfigurationError(
            'no App: give --app module:attribute, set ROTA_APP, or write app = "module:attribute" under [tool.rota] in pyproject.toml'
        )
    return app


def find_app(reference: str | None) -> App | None:
    """Return the App that the option, the environment or the nearest pyproject.toml names; None when none does."""
    directory, reference = _reference(reference)
    if not reference:
        return None
    places = [str(Path.cwd()), str(directory)]
    sys.path[:] = [*dict.fromkeys(places), *(place for place in sys.path if place not in places)]
    return load(reference, App)


def need_reference(reference: str | None) -> tuple[Path, str]:
    """Return the directory in which the App is found, and the module:attribute that names it, once `need_app` has found it there."""
    directory, found = _reference(reference)
    assert found is not None
    return directory, found


def _reference(reference: str | None) -> tuple[Path, str | None]:
    here = _here()
    reference = reference or os.environ.get("ROTA_APP")
    return (here, reference) if reference else _from_pyproject(here)


def _here() -> Path:
    """The directory that the shell is in, by the name it has there: a link such as `current` leads to the release of the day, which the next deploy
    leaves behind, and what is printed for cron is to follow it."""
    here = Path.cwd()
    named = Path(os.environ.get("PWD", ""))
    with suppress(OSError):  # it is not there, or not for this user to look at
        if named.is_absolute() and ".." not in named.parts and named.samefile(here):
            return named
    return here


def _from_pyproject(start: Path) -> tuple[Path, str | None]:
    """The nearest directory, upwards, whose pyproject.toml has [tool.rota], and what it says."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file() raises where this user may not look, as under `sudo -u app` in root's home
            continue
        try:
            settings = (
                tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("rota", {})
            )
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None
        reference = settings.get("app")
        if reference is not None and not isinstance(reference, str):
            raise ConfigurationError(
                f'{path}: app under [tool.rota] must be a text such as "myproject.app:app", not {reference!r}'
            )
        if reference:
            return directory, reference
    return start, None
