"""The pytest plugin, in runs of pytest of its own, and the databases that it lends."""

from __future__ import annotations

import importlib
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.errors import ConfigurationError
from rota.testing import databases
from rota.testing.databases import TestDatabases, find_tested_app
from tests.support.server import PostgresServer
from tests.testing.pytest_project import PytestProject

Admin = psycopg.Connection[TupleRow]

USES = """
import rota as package
from shop import app, welcome


def test_first(rota_test):
    welcome.enqueue(1)
    assert rota_test.enqueued(welcome, user_id=1).id == 1
    assert rota_test.drain().succeeded == 1


def test_second(rota_test):
    rota_test.refute_enqueued(welcome)
    with open("name.txt", "w") as file:
        file.write(rota_test.url.rpartition("/")[2])
    assert welcome.enqueue(2).id == 1, "the database of the other test"
    assert package.Status.QUEUED == rota_test.enqueued(welcome).status
"""


@pytest.fixture
def project(tmp_path: Path, server: PostgresServer) -> PytestProject:
    return PytestProject(tmp_path, ROTA_TEST_DATABASE_URL=server.url())


def find_left(admin: Admin, run: str, *, is_over: bool = True) -> set[str]:
    """The databases of a run; of one that is over, once nobody drops them: another's run may."""
    for call in ("pg_advisory_lock", "pg_advisory_unlock") if is_over else ():
        admin.execute(f"select {call}({databases._lock(run)})".encode())
    names = "select datname from pg_database where starts_with(datname, %s)"
    return {row[0] for row in admin.execute(names, [f"rota_test_{run}_"]).fetchall()}


# Runs of pytest


@pytest.mark.nightly
def test_each_test_has_a_database_of_its_own_and_none_is_left(
    project: PytestProject, admin: Admin
) -> None:
    project.write("test_shop.py", USES)
    ran = project.test()
    assert (ran.status, "2 passed" in ran.out) == (0, True), ran.out
    run = project.directory.joinpath("name.txt").read_text().split("_")[2]
    assert find_left(admin, run) == set()


def test_nothing_starts_before_a_fixture_is_used(project: PytestProject) -> None:
    project.environment["ROTA_TEST_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    project.write(
        "test_other.py",
        "import sys\n\n\ndef test_other():\n"
        "    assert 'pytest_rota' in sys.modules\n"
        "    assert not {'rota', 'psycopg', 'msgspec'} & sys.modules.keys()\n",
    )
    ran = project.test("-p", "no:randomly")  # it imports others, as polyfactory, which has msgspec
    assert ran.status == 0, ran.out
    assert not (project.directory / ".rota-test").exists()


AWAITED = """
import pytest

from shop import welcome

@pytest.fixture
def anyio_backend():
    return 'asyncio'


@pytest.mark.{mark}
async def test_welcome(rota_test):
    await welcome.aenqueue(1)
    await rota_test.aenqueued(welcome)
    assert (await rota_test.adrain()).succeeded == 1
"""
UNITTEST = """
import unittest

import psycopg
import pytest

from rota.testing import Harness
from shop import app, welcome


class TestShop(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def database(self, rota_test):
        self.url = rota_test.url

    def test_welcome(self):
        with psycopg.connect(self.url) as connection:
            with Harness(app, connection=connection) as harness:
                welcome.enqueue(1)
                assert harness.drain().succeeded == 1
            connection.rollback()
"""


@pytest.mark.nightly
def test_it_works_under_asyncio_anyio_and_unittest(project: PytestProject) -> None:
    for mark in ("asyncio", "anyio"):
        project.write(f"test_{mark}.py", AWAITED.format(mark=mark))
    project.write("test_unittest.py", UNITTEST)
    ran = project.test()
    assert (ran.status, "3 passed" in ran.out) == (0, True), ran.out


@pytest.mark.nightly
@pytest.mark.system
def test_without_a_url_a_private_server_is_used(tmp_path: Path) -> None:
    project = PytestProject(tmp_path)
    project.write("test_shop.py", USES)
    ran = project.test()
    assert (ran.status, "2 passed" in ran.out) == (0, True), ran.out


# The databases


@pytest.fixture
def given(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.url().replace("postgresql:", "postgresql+asyncpg:")
    monkeypatch.setenv("ROTA_TEST_DATABASE_URL", url)


def make_app() -> rota.App:
    app = rota.App(release="1")
    app.job("welcome")(lambda: None)
    return app


@pytest.mark.usefixtures("given")
def test_processes_of_one_run_share_a_template_with_the_tables_and_types_of_the_application(
    tmp_path: Path, admin: Admin
) -> None:
    run, made = uuid4().hex, list[str]()
    both = threading.Barrier(2, timeout=60)

    async def make(url: str) -> None:
        made.append(url)
        connection = await asyncpg.connect(url)
        await connection.execute("create table public.app_user (name text)")
        await connection.close()

    def process(_: int) -> tuple[str, list[Any]]:
        with (
            TestDatabases(make_app(), tmp_path, make, run=run) as lent,
            lent.make_one() as url,
            psycopg.connect(url) as connection,
        ):
            both.wait()
            query = "select name from rota.job_type union all select name from public.app_user"
            return url, connection.execute(query).fetchall()

    with ThreadPoolExecutor(2) as threads:
        (first, rows), (second, others) = threads.map(process, range(2))
    assert rows == others == [("welcome",)] and first != second
    assert len(made) == 1
    assert find_left(admin, run[:8]) == set()


@pytest.mark.usefixtures("given")
def test_what_a_killed_run_left_is_dropped_by_the_next(tmp_path: Path, admin: Admin) -> None:
    killed = TestDatabases(make_app(), tmp_path).__enter__()
    copy, run = killed._copy(), killed._run
    assert find_left(admin, run, is_over=False) == {copy, f"rota_test_{run}_template"}
    killed._server.close()
    find_left(admin, run)  # the server knows from here on that the run is over
    with TestDatabases(make_app(), tmp_path):
        assert find_left(admin, run) == set()


@pytest.mark.usefixtures("given")
def test_what_keeps_databases_from_being_made_is_an_error_in_words(
    tmp_path: Path, server: PostgresServer, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "UNUSED_S", 0.1)
    kept: list[Admin] = []
    keeps = TestDatabases(make_app(), tmp_path, lambda url: kept.append(psycopg.connect(url)))
    with pytest.raises(ConfigurationError, match="has left a connection to the template open"):
        keeps.__enter__()
    kept[0].close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_APP", raising=False)
    with pytest.raises(ConfigurationError, match="no App to test: override the fixture rota_app"):
        find_tested_app("")
    role = f"no_createdb_{uuid4().hex[:8]}"
    admin.execute(f"create role {role} login".encode())
    try:
        monkeypatch.setenv("ROTA_TEST_DATABASE_URL", server.url().replace("postgres@", f"{role}@"))
        with pytest.raises(ConfigurationError, match="must be able to create databases: ALTER R"):
            TestDatabases(make_app(), tmp_path).__enter__()
    finally:
        admin.execute(f"drop role {role}".encode())


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    name = project["project"]["entry-points"]["pytest11"]["rota"]
    assert importlib.import_module(name).pytest_addoption
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert f"src/{name}.py" in wheel
