"""Finds the App and the database that a command works with."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import StackSummary, TracebackException
from typing import Annotated, Any

import typer

from rota import embedded
from rota.app import App
from rota.cli.flags import flag, option
from rota.cli.output import Times, say
from rota.client.session import Session
from rota.declare.load import load
from rota.declare.tables import Tables
from rota.declare.url import find_url
from rota.errors import ConfigurationError, RotaError
from rota.model.failure import one_line
from rota.store.db import Database
from rota.store.drivers.own import translate_refusals
from rota.store.errors import is_of_pooler

_OUR_FRAMES = (
    str(Path(embedded.__file__).parents[1]),
    str(Path(importlib.__file__).parent),
    "<frozen importlib",
)
"""Beginnings of file names whose frames say nothing about an App that cannot be imported."""

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        help="The rota.App. Default: ROTA_APP, then app under \\[tool.rota] in pyproject.toml.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class Reason:
    """Who acts, and why: the options of the commands that leave a row in the action log."""

    why: str | None = option("--why TEXT", "Reason, recorded with the action.")
    by: str | None = option("--by NAME", "Person or program that acts. Default: user@host.")


@dataclass(frozen=True)
class Place:
    """Where a command works: the options that name the App and the database."""

    app: AppOption = None
    url: str | None = option(
        "--url URL",
        "Database URL. Default: the App's, then ROTA_DATABASE_URL, then the private "
        "PostgreSQL in .rota.",
    )
    schema: str | None = option(
        "--schema NAME", "Schema of Rota's tables. Default: the App's, then ROTA_SCHEMA, then rota."
    )

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Connect to the database while the block runs, with the App's settings, if any. Raises
        ConfigurationError or DatabaseUnavailable at once; a pool would wait first."""
        owner = self.find_owner()
        database = self.make_database(owner)
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(connect(database, owner))
            except ConfigurationError as error:
                if owner is not None or not is_of_pooler(error):
                    raise
                # Without an App nothing can say notify=False.
                opened = stack.enter_context(connect(database.strip_settings()))
            yield opened

    def find_target(self) -> tuple[Database, App | None]:
        owner = None if self._needs_no_app else find_app(self.app)
        return self.make_database(owner), owner

    def find_schema(self) -> str:
        """Return the schema. A given schema needs no App."""
        return self.schema or self._find_schema(find_app(self.app))

    def find_packages(self) -> Sequence[Tables]:
        """Return the App's packages of tables; none without an importable App, or with only a
        schema."""
        owner = None if self.schema and not self.app else self.find_app()[0]
        return () if owner is None else owner._declarations.packages

    def find_app(self) -> tuple[App | None, str | None]:
        """Return the App, if any, and why it cannot be imported. Raises RotaError only if nothing
        else names the database: a broken App must not block a diagnosis."""
        try:
            return find_app(self.app), None
        except RotaError as error:
            if not (self.url or os.environ.get("ROTA_DATABASE_URL")):
                raise
            return None, one_line(str(error))

    @property
    def _needs_no_app(self) -> bool:
        return bool(self.url and self.schema and not self.app)

    def find_owner(self) -> App | None:
        owner, failure = (None, None) if self._needs_no_app else self.find_app()
        if failure is not None:
            where = f"without the App, in schema {self._find_schema(None)}"
            typer.echo(f"rota: warning: {failure}; going on {where}", err=True)
        return owner

    def make_database(self, owner: App | None) -> Database:
        url = find_url(self.url) if self.url or owner is None else owner._find_url()
        schema = self._find_schema(owner)
        return Database(url or embedded.start(), schema, notify=owner is None or owner._notify)

    def _find_schema(self, owner: App | None) -> str:
        if self.schema:
            return self.schema
        return owner.schema if owner else os.environ.get("ROTA_SCHEMA") or "rota"


@dataclass(frozen=True)
class Viewer(Place):
    """The options of a command that shows what it found."""

    utc: bool = flag("--utc", "Print times in UTC, instead of how long ago they are.")
    as_json: JsonOption = False

    def read_times(self, opened: Session) -> Times:
        return Times(opened.read_clock(), self.utc)


@dataclass(frozen=True)
class Actor(Place, Reason):
    """The options of a command that acts and reports."""

    as_json: JsonOption = False

    def say(self, facts: Any, text: str) -> None:
        say(facts, text, as_json=self.as_json)


@contextmanager
def connect(database: Database, owner: App | None = None) -> Iterator[Session]:
    """Connect to a database while the block runs. Raises RotaError for a refused statement."""
    with translate_refusals(), database.open_connection("cli") as connection:
        yield Session(database, connection, owner)


def need_app(reference: str | None) -> App:
    app = find_app(reference)
    if app is None:
        raise ConfigurationError(
            "no App: give --app module:attribute, set ROTA_APP, or write "
            'app = "module:attribute" under [tool.rota] in pyproject.toml'
        )
    return app


def find_app(reference: str | None) -> App | None:
    """Return the App of the option, the environment or the nearest pyproject.toml; None: no App."""
    directory, reference = _reference(reference)
    if not reference:
        return None
    places = [str(Path.cwd()), str(directory)]
    sys.path[:] = [*dict.fromkeys(places), *(place for place in sys.path if place not in places)]
    try:
        return load(reference, App)
    except RotaError:
        raise
    except Exception as error:
        cause = one_line(f"{type(error).__name__}: {error}")
        failed = ConfigurationError(f"{reference!r} cannot be imported: {cause}")
        failed.add_note(_describe_failed_import(error))
        raise failed from error


def _describe_failed_import(error: Exception) -> str:
    """Format an error with the frames of the user's code, and of its causes."""
    shown = TracebackException.from_exception(error)
    part: TracebackException | None = shown
    while part is not None:
        own = [frame for frame in part.stack if not frame.filename.startswith(_OUR_FRAMES)]
        part.stack = StackSummary.from_list(own)
        part = part.__cause__ or part.__context__
    return "".join(line for line in shown.format() if not line.startswith("Traceback ("))


def need_reference(reference: str | None) -> tuple[Path, str]:
    """Return the directory of the App and its module:attribute. Call `need_app` first."""
    directory, found = _reference(reference)
    assert found is not None
    return directory, found


def _reference(reference: str | None) -> tuple[Path, str | None]:
    here = _here()
    reference = reference or os.environ.get("ROTA_APP")
    return (here, reference) if reference else _from_pyproject(here)


def _here() -> Path:
    """Return the current directory by the name that the shell uses. A link such as `current` stays
    unresolved: a printed crontab must follow the link after the next deploy."""
    here = Path.cwd()
    named = Path(os.environ.get("PWD", ""))
    with suppress(OSError):  # missing, or not readable by this user
        if named.is_absolute() and ".." not in named.parts and named.samefile(here):
            return named
    return here


def _from_pyproject(start: Path) -> tuple[Path, str | None]:
    """Return the nearest directory, upwards, whose pyproject.toml names the App, and this name."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        # Path.is_file() raises if this user may not read the directory, as under `sudo -u app`.
        if not os.path.isfile(path):  # noqa: PTH113
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
                f'{path}: app under [tool.rota] must be a string such as "myproject.app:app", '
                f"not {reference!r}"
            )
        if reference:
            return directory, reference
    return start, None
