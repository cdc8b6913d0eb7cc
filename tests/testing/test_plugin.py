"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.server import PostgresServer
from tests.support.wait import eventually
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


def find_left(admin: Admin) -> set[str]:
    """The databases of runs of the plugin."""
    rows = admin.execute(
        "select datname from pg_database where starts_with(datname, 'rota_test_')"
    ).fetchall()
    return {row[0] for row in rows}


def test_each_test_has_a_database_of_its_own_and_none_is_left(
    project: PytestProject, admin: Admin
) -> None:
    project.write("test_shop.py", USES)
    ran = project.test()
    assert (ran.status, "2 passed" in ran.out) == (0, True), ran.out
    assert project.directory.joinpath("name.txt").read_text() not in find_left(admin)


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


def test_processes_of_xdist_share_a_template(project: PytestProject) -> None:
    project.write(
        "conftest.py",
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef rota_template():\n"
        "    def make(url):\n"
        "        with open('made.txt', 'a') as made:\n"
        "            made.write('made\\n')\n"
        "    return make\n",
    )
    project.write("test_one.py", USES)
    project.write("test_two.py", USES)
    ran = project.test("-n", "2")
    assert (ran.status, "4 passed" in ran.out) == (0, True), ran.out
    assert (project.directory / "made.txt").read_text() == "made\n"


def test_the_tables_and_the_app_of_the_project_are_used(project: PytestProject) -> None:
    project.configure("", "rota_app = 'shop:app'\n")
    project.write(
        "conftest.py",
        "import psycopg\nimport pytest\n\n\n@pytest.fixture(scope='session')\n"
        "def rota_template():\n"
        "    def make(url):\n"
        "        with psycopg.connect(url) as connection:\n"
        "            connection.execute('create table public.app_user (name text)')\n"
        "    return make\n",
    )
    project.write(
        "test_shop.py",
        "import psycopg\n\n\ndef test_a_table(rota_test):\n"
        "    with psycopg.connect(rota_test.url) as connection:\n"
        "        connection.execute(\"insert into app_user values ('ada')\")\n"
        "        found = connection.execute('select name from rota.job_type').fetchall()\n"
        "    assert found == [('welcome',)], 'the types are declared'\n",
    )
    ran = project.test()
    assert ran.status == 0, ran.out


def test_an_async_function_makes_tables_and_each_url_is_one_of_the_test(
    project: PytestProject, server: PostgresServer
) -> None:
    url = server.url().replace("postgresql:", "postgresql+asyncpg:")
    project.environment |= {"ROTA_TEST_DATABASE_URL": url, "ROTA_DATABASE_URL": server.url("none")}
    project.write(
        "conftest.py",
        "import asyncpg\nimport pytest\n\n\n@pytest.fixture(scope='session')\n"
        "def rota_template():\n"
        "    async def make(url):\n"
        "        connection = await asyncpg.connect(url)\n"
        "        await connection.execute('create table public.app_user (name text)')\n"
        "        await connection.close()\n"
        "    return make\n",
    )
    project.write(
        "test_shop.py",
        "import asyncpg\nimport pytest\nfrom shop import app\n\n\n@pytest.mark.asyncio\n"
        "async def test_a_table(rota_test):\n"
        "    connection = await asyncpg.connect(app.url)\n"
        "    assert await connection.fetch('select name from app_user') == []\n"
        "    await connection.close()\n"
        "    assert app.url == rota_test.url\n\n\n"
        "def test_after_it():\n"
        "    assert app.url.endswith('/none')\n",
    )
    ran = project.test("-p", "no:randomly")
    assert (ran.status, "2 passed" in ran.out) == (0, True), ran.out


def test_a_connection_that_the_template_keeps_is_an_error_in_words(
    project: PytestProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(
        "conftest.py",
        "import psycopg\nimport pytest\nfrom rota.testing import databases\n\n"
        "databases.UNUSED_S = 0.1\nkept = []\n\n\n@pytest.fixture(scope='session')\n"
        "def rota_template():\n    return lambda url: kept.append(psycopg.connect(url))\n",
    )
    project.write("test_shop.py", USES)
    ran = project.test("-W", "default")
    assert "has left a connection to the template open" in ran.out, ran.out


def test_no_app_is_an_error_in_words(project: PytestProject) -> None:
    project.configure("")
    project.write("test_shop.py", "def test_one(rota_test): ...\n")
    ran = project.test()
    assert "no App to test: override the fixture rota_app in conftest.py" in ran.out, ran.out


def test_a_role_that_may_not_create_databases_is_told_so(
    project: PytestProject, admin: Admin
) -> None:
    admin.execute("create role rota_no_createdb login password 'secret'")
    try:
        info = admin.info
        project.environment["ROTA_TEST_DATABASE_URL"] = (
            f"postgresql://rota_no_createdb:secret@{info.host}:{info.port}/postgres"
        )
        project.write("test_shop.py", "def test_one(rota_test): ...\n")
        ran = project.test()
        assert "must be able to create databases: ALTER ROLE … CREATEDB" in ran.out, ran.out
    finally:
        admin.execute("drop role rota_no_createdb")


def test_what_a_killed_run_left_is_dropped_by_the_next(
    project: PytestProject, admin: Admin
) -> None:
    project.write(
        "test_shop.py",
        "import threading\n\n\ndef test_for_ever(rota_test):\n"
        "    with open('url.txt', 'w') as file:\n        file.write(rota_test.url)\n"
        "    threading.Event().wait()\n",
    )
    place = project.directory / "url.txt"
    with project.start() as killed:
        try:
            eventually(lambda: place.exists() and bool(place.read_text()), timeout_s=60)
        finally:
            killed.kill()
    left = place.read_text().rpartition("/")[2].partition("?")[0]
    assert left in find_left(admin)
    project.write("test_shop.py", USES)
    assert project.test().status == 0
    assert left not in find_left(admin)
    assert not {name for name in find_left(admin) if name.startswith(left[:18])}


@pytest.mark.parametrize("runner", ["asyncio", "anyio", "unittest"])
def test_it_works_under(project: PytestProject, runner: str) -> None:
    marks = {"asyncio": "asyncio", "anyio": "anyio", "unittest": ""}
    if runner == "unittest":
        text = (
            "import unittest\n\nimport psycopg\nimport pytest\n\nfrom rota.testing import Harness\n"
            "from shop import app, welcome\n\n\n"
            "class TestShop(unittest.TestCase):\n"
            "    @pytest.fixture(autouse=True)\n    def database(self, rota_test):\n"
            "        self.url = rota_test.url\n\n"
            "    def test_welcome(self):\n"
            "        with psycopg.connect(self.url) as connection:\n"
            "            with Harness(app, connection=connection) as harness:\n"
            "                welcome.enqueue(1)\n"
            "                assert harness.drain().succeeded == 1\n"
            "            connection.rollback()\n"
        )
    else:
        text = (
            "import pytest\n\nfrom shop import welcome\n\n"
            "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n\n\n"
            f"@pytest.mark.{marks[runner]}\nasync def test_welcome(rota_test):\n"
            "    await welcome.aenqueue(1)\n"
            "    await rota_test.aenqueued(welcome)\n"
            "    assert (await rota_test.adrain()).succeeded == 1\n"
        )
    project.write("test_shop.py", text)
    ran = project.test()
    assert (ran.status, "1 passed" in ran.out) == (0, True), ran.out


@pytest.mark.system
def test_without_a_url_a_private_server_is_used(tmp_path: Path) -> None:
    project = PytestProject(tmp_path)
    project.write("test_shop.py", USES)
    ran = project.test()
    assert (ran.status, "2 passed" in ran.out) == (0, True), ran.out


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    name = project["project"]["entry-points"]["pytest11"]["rota"]
    assert importlib.import_module(name).pytest_addoption
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert f"src/{name}.py" in wheel
