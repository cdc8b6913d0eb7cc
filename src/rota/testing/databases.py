"""A database for each test, copied from a template that is made once in a run of pytest.

Names are `rota_test_<run>_…`. Each process of a run holds a shared advisory lock of the run, so the
next run drops the databases of a killed run. While a test runs, the next copy is made and the last
copy is dropped.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from rota import embedded
from rota.app import App
from rota.cli.target import find_app
from rota.declare.url import make_plain
from rota.errors import ConfigurationError
from rota.store import migrate
from rota.store.drivers import own
from rota.store.drivers.psycopg3 import ERRORS, translate
from rota.testing.harness import Harness

PREFIX = "rota_test_"
DIRECTORY = ".rota-test"
"""The directory of the tests' private server, under the root directory of pytest."""
MEMORY = Path("/dev/shm")
"""The directory if there is room here: a copy takes a third of the time."""
MEMORY_BYTES_LEAST = 2**30
UNUSED_S = 10.0
"""Longest wait for the end of a template's sessions."""
_NO_CREATEDB = "42501"
_FAST = ("fsync", "synchronous_commit", "full_page_writes")
"""Settings that keep data through a crash: a test needs none."""


def find_tested_app(reference: str) -> App:
    """Return the App under test. Raises ConfigurationError."""
    app = find_app(reference or None)
    if app is None:
        raise ConfigurationError(
            "no App to test: override the fixture rota_app in conftest.py, or name the App as "
            '"module:attribute": rota_app in the configuration of pytest, ROTA_APP, or app under '
            "[tool.rota] in pyproject.toml"
        )
    return app


class TestDatabases:
    __test__ = False  # pytest would collect it

    def __init__(
        self,
        app: App,
        root: Path,
        make_tables: Callable[[str], object] | None = None,
        *,
        run: str | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            app: the App; its schema is migrated, and its types and schedules are declared.
            root: the place of the private server's directory without ROTA_TEST_DATABASE_URL.
            make_tables: makes the application's own tables, given the URL of the template; plain or
                async.
            run: a name that the processes of a run share. Defaults to a run of this process.
        """
        self._app = app
        self._root = root
        self._make_tables = make_tables
        self._run = (run or uuid.uuid4().hex)[:8]
        self._template = f"{PREFIX}{self._run}_template"
        self._url = ""
        self._server: Any = None
        """A connection outside the tests' databases."""
        self._aside = ThreadPoolExecutor(1, "rota-test-databases")
        """Makes and drops copies, on `_server`."""
        self._next: Future[str] | None = None

    def __enter__(self) -> Self:
        given = os.environ.get("ROTA_TEST_DATABASE_URL")
        self._url = make_plain(given) if given else embedded.start(_find_directory(self._root))
        own.parse_url(self._url)
        with own.translate_errors():
            self._server = own.open_plain(self._url)
        try:
            if not given:
                self._forgo_durability()
            self._drop_left()
            self._execute(f"select pg_advisory_lock_shared({_lock(self._run)})")
            self._make_template()
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._aside.shutdown()
        try:
            self._execute(f"select pg_advisory_unlock_shared({_lock(self._run)})")
            if self._is_over(self._run):
                self._drop_run(self._run)
        finally:
            self._server.close()

    @contextmanager
    def make_one(self) -> Iterator[str]:
        """Lend the URL of a fresh copy. After the block it is dropped with its sessions."""
        name = (self._next or self._aside.submit(self._copy)).result()
        self._next = self._aside.submit(self._copy)
        try:
            yield self._find_url(name)
        finally:
            self._aside.submit(self._execute, f"drop database if exists {name} with (force)")

    def _copy(self) -> str:
        name = f"{PREFIX}{self._run}_{uuid.uuid4().hex[:12]}"
        self._execute(f"create database {name} template {self._template}")
        return name

    # The template

    def _make_template(self) -> None:
        """Make the template unless another process of the run has."""
        lock = _lock(self._template)
        self._execute(f"select pg_advisory_lock({lock})")
        try:
            if self._template not in self._list_databases():
                self._fill_template(f"{self._template}_unfinished")
        finally:
            self._execute(f"select pg_advisory_unlock({lock})")

    def _fill_template(self, unfinished: str) -> None:
        self._execute(f"drop database if exists {unfinished} with (force)")
        self._execute(f"create database {unfinished}")
        url = self._find_url(unfinished)
        migrate.migrate(url, self._app.schema, self._app._declarations.packages)
        if self._make_tables is not None:
            made = self._make_tables(url)
            if inspect.iscoroutine(made):
                asyncio.run(made)
        with Harness(self._app, url):
            self._app.sync()
        self._wait_until_unused(unfinished)
        self._execute(f"alter database {unfinished} rename to {self._template}")

    def _wait_until_unused(self, name: str) -> None:
        """Wait until the template has no sessions: the server does not copy a template in use."""
        deadline = time.monotonic() + UNUSED_S
        count = "select count(*) from pg_stat_activity where datname = '{}'"
        while self._execute(count.format(name))[0][0]:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    "the function of the fixture rota_template has left a connection to the "
                    "template open, so it cannot be copied: close it, as by engine.dispose()"
                )
            time.sleep(0.005)

    # What is left of a run

    def _drop_left(self) -> None:
        for run in {name[len(PREFIX) :].partition("_")[0] for name in self._list_databases()}:
            if run != self._run and self._is_over(run):
                self._drop_run(run)

    def _is_over(self, run: str) -> bool:
        """Whether no process of a run is left. If so, lock the run."""
        return bool(self._execute(f"select pg_try_advisory_lock({_lock(run)})")[0][0])

    def _drop_run(self, run: str) -> None:
        for name in self._list_databases():
            if name.startswith(f"{PREFIX}{run}_"):
                self._execute(f'drop database if exists "{name}" with (force)')
        self._execute(f"select pg_advisory_unlock({_lock(run)})")

    def _list_databases(self) -> list[str]:
        """Return the databases of tests that this role owns."""
        rows = self._execute(
            "select datname from pg_database "
            f"where starts_with(datname, '{PREFIX}') and pg_has_role(datdba, 'usage')"
        )
        return [row[0] for row in rows]

    # The server

    def _forgo_durability(self) -> None:
        for name in _FAST:
            self._execute(f"alter system set {name} = off")
        self._execute("select pg_reload_conf()")

    def _find_url(self, name: str) -> str:
        if "://" in self._url:
            return urlsplit(self._url)._replace(path=f"/{name}").geturl()
        return own.format_conninfo({**own.parse_url(self._url), "dbname": name})

    def _execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement. Raises ConfigurationError without the right."""
        try:
            cursor = self._server.execute(statement)
        except ERRORS as error:
            known = translate(error)
            if known.sqlstate != _NO_CREATEDB:
                raise
            raise ConfigurationError(
                "the role of ROTA_TEST_DATABASE_URL must be able to create databases: ALTER ROLE "
                f"… CREATEDB ({known.first_line})"
            ) from error
        return cursor.fetchall() if cursor.description else []


def _find_directory(root: Path) -> Path:
    """Return the directory of the private server, for each root directory and user."""
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return root / DIRECTORY
    if room.f_bavail * room.f_frsize < MEMORY_BYTES_LEAST:
        return root / DIRECTORY
    return MEMORY / f"rota-test-{os.getuid()}-{sha256(bytes(root)).hexdigest()[:12]}"


def _lock(name: str) -> str:
    return f"hashtextextended('{PREFIX}{name}', 0)"
