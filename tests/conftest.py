"""The server, the databases and the settings that all tests share."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, LiteralString
from zlib import crc32

import hypothesis
import psycopg
import pytest
from hypothesis import Phase
from psycopg import sql
from psycopg.rows import TupleRow

from tests.support.databases import Databases, wait_until_unused
from tests.support.guard import PLACE, Run, forget_databases, locked, measure_servers, stop_servers
from tests.support.server import ELSEWHERE, PostgresServer, shared_server
from tests.support.server import own_server as start_own_server

TEMPLATE = "rota_template"
BYTECODE = Path(__file__).parent / "store" / "__pycache__"
"""Where pytest writes that of some tests."""

_run = pytest.StashKey[Run]()
_place = pytest.StashKey[Path]()
_is_given = pytest.StashKey[bool]()

# The same examples in every run: a red test stays red. `--hypothesis-profile=default` goes looking
# for new ones.
hypothesis.settings.register_profile("rota", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile(
    "first found", hypothesis.settings.get_profile("rota"), phases=(Phase.explicit, Phase.generate)
)
hypothesis.settings.load_profile("rota")


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PostgresServer:
    """The PostgreSQL of this run, the same one for all xdist workers.

    Tests share it, so none may stop it.
    """
    return shared_server(
        request.config.stash[_place], _log(request.config, tmp_path_factory, "postgresql.log")
    )


@pytest.fixture(scope="session")
def run_place(request: pytest.FixtureRequest) -> Path:
    """The directory of this run, the same for all xdist workers; gone when it ends."""
    return request.config.stash[_place]


@pytest.fixture
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL for this test alone, to stop and restart; it has no databases but its own."""
    place = request.config.stash[_place]
    server = start_own_server(place, tmp_path / "postgresql.log")
    yield server
    stop_servers(place, server.socket_dir.name)  # its files, too: they may be in memory


@pytest.fixture(scope="session")
def template(
    request: pytest.FixtureRequest, server: PostgresServer, admin: psycopg.Connection[TupleRow]
) -> str:
    """A migrated database without connections, which `database` is a copy of.

    It is migrated once per run.
    """
    from rota.store.migrate import migrate

    is_of_another_run = request.config.stash.get(_is_given, False)

    with locked(server.place / "template.lock"):
        if _is_there(admin, TEMPLATE):
            if is_of_another_run:  # and may have been made by another tree, as a mutant's
                _execute(admin, "ALTER DATABASE {} ALLOW_CONNECTIONS true", TEMPLATE)
                migrate(server.url(TEMPLATE))
                wait_until_unused(TEMPLATE, admin)
                _execute(admin, "ALTER DATABASE {} ALLOW_CONNECTIONS false", TEMPLATE)
        else:
            unfinished = f"{TEMPLATE}_unfinished"
            _drop(admin, unfinished)
            _execute(admin, "CREATE DATABASE {}", unfinished)
            migrate(server.url(unfinished))
            _shrink(server.url(unfinished))
            _forget_the_start_of_the_server(server.url(unfinished))
            wait_until_unused(unfinished, admin)
            _execute(admin, "ALTER DATABASE {} RENAME TO {}", unfinished, TEMPLATE)
            # A connection to it would make the copies wait, then fail.
            _execute(admin, "ALTER DATABASE {} ALLOW_CONNECTIONS false", TEMPLATE)
    return TEMPLATE


@pytest.fixture(scope="session")
def databases(server: PostgresServer, template: str) -> Iterator[Databases]:
    """The migrated databases of this process."""
    with Databases(server.url(), template) as databases:
        yield databases


@pytest.fixture(scope="session")
def empty_databases(server: PostgresServer) -> Iterator[Databases]:
    """The databases of this process that were never migrated."""
    with Databases(server.url(), "template1") as databases:
        yield databases


@pytest.fixture
def database(server: PostgresServer, databases: Databases) -> Iterator[str]:
    """The URL of a freshly migrated database that belongs to this test."""
    with databases.lend() as name:
        yield server.url(name)


@pytest.fixture
def empty_database(server: PostgresServer, empty_databases: Databases) -> Iterator[str]:
    """The URL of a database of this test that was never migrated."""
    with empty_databases.lend() as name:
        yield server.url(name)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """An autocommit connection to `database`."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def admin(server: PostgresServer) -> Iterator[psycopg.Connection[TupleRow]]:
    """The superuser's connection, outside the tests' databases: to make databases and roles."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield connection


def pytest_report_header() -> str | None:
    elsewhere = os.environ.get(ELSEWHERE)
    return f"PostgreSQL: {elsewhere}" if elsewhere else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="one test of N: 0/20, 1/20, … 19/20")


def pytest_configure(config: pytest.Config) -> None:
    given = os.environ.get(PLACE)
    forget_databases()
    if hasattr(config, "workerinput"):
        config.stash[_place] = Path(config.workerinput["place"])
    elif given:
        config.stash[_place] = Path(given)
        config.stash[_is_given] = True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if _place not in session.config.stash:
        run = Run()
        session.config.stash[_run] = run
        session.config.stash[_place] = run.place


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["place"] = str(node.config.stash[_place])


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """In a fresh clone one process writes the bytecode of the tests, and the others read it."""
    with locked(session.config.stash[_place] / "collection.lock"):
        if not any(BYTECODE.glob("test_*")):
            return (yield)
    return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--slice K/N` keep one test of N. Its name decides: another new test moves none."""
    if asked := config.getoption("slice"):
        number, count = map(int, asked.split("/"))
        items[:] = [item for item in items if crc32(item.nodeid.encode()) % count == number]


def pytest_collection_finish() -> None:
    gc.freeze()  # half a million objects stay to the end: no collection looks at them again


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the run has cost: CPU, also of processes and servers, and not time alone."""
    if _run in config.stash:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
        servers_s = measure_servers(config.stash[_place])
        terminalreporter.write_line(
            f"{own_s + servers_s:.0f} s of CPU, of them {servers_s:.0f} s in PostgreSQL"
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    if _run in config.stash:
        config.stash[_run].end()


def _forget_the_start_of_the_server(url: str) -> None:
    """The server of a test run has just started, and the reaper would give all workers time to
    come back.

    Tests of that very rule move it again.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create or replace function rota.uptime() returns interval language sql stable "
            "parallel safe as $$select interval '1 day'$$"
        )
        connection.execute(
            "update rota.definition d set server_hash = md5(t.text) from rota.definition_texts() t "
            "where t.name = d.name and d.name = 'uptime'"
        )


def _shrink(url: str) -> None:
    """Rewrite the system catalogs, which the migration has left half empty: a copy and its drop
    then cost a sixth less. Rota's own tables stay as they are, so plans do, too."""
    catalogs = (
        "select oid::regclass::text from pg_class where relkind = 'r' and not relisshared "
        "and relnamespace = 'pg_catalog'::regnamespace"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        for (catalog,) in connection.execute(catalogs).fetchall():
            connection.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(catalog)))


def _drop(admin: psycopg.Connection[TupleRow], name: str) -> None:
    _execute(admin, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _execute(admin: psycopg.Connection[TupleRow], statement: LiteralString, *names: str) -> None:
    admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _is_there(admin: psycopg.Connection[TupleRow], name: str) -> bool:
    return (
        admin.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is not None
    )


def _log(config: pytest.Config, factory: pytest.TempPathFactory, name: str) -> Path:
    base = factory.getbasetemp()
    return (base.parent if hasattr(config, "workerinput") else base) / name
