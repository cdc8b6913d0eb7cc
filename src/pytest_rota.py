"""The pytest plugin of Rota. It imports Rota, and starts a server, when a test asks for a fixture.

It stands outside the package: to import `rota.…` imports Rota and its database driver, also in the
runs of pytest that have nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rota import App
    from rota.testing import Harness
    from rota.testing.databases import TestDatabases


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of pytest's configuration."""
    parser.addini("rota_app", "the App of the fixture `rota_test`: module:attribute", default="")


@pytest.fixture(scope="session")
def rota_app(pytestconfig: pytest.Config) -> App:
    """The App of the fixture `rota_test`. Override it in conftest.py, or name the App: `rota_app`
    in pytest's configuration, ROTA_APP, or `app` under [tool.rota] in pyproject.toml."""
    from rota.testing.databases import find_tested_app  # noqa: PLC0415 - see the head

    return find_tested_app(pytestconfig.getini("rota_app"))


@pytest.fixture(scope="session")
def rota_template() -> Callable[[str], object] | None:
    """A function, plain or async, that makes your own tables, given the URL of the template of all
    test databases. It is called once in a run of pytest, after Rota's own migration. Override it in
    conftest.py."""
    return None


@pytest.fixture(scope="session")
def rota_databases(
    pytestconfig: pytest.Config, rota_app: App, rota_template: Callable[[str], object] | None
) -> Iterator[TestDatabases]:
    """The server and the template of the tests' databases. Overriding it is not supported."""
    from rota.testing.databases import TestDatabases  # noqa: PLC0415 - see the head

    # The processes of pytest-xdist share a run.
    run = getattr(pytestconfig, "workerinput", {}).get("testrunuid")
    with TestDatabases(rota_app, pytestconfig.rootpath, rota_template, run=run) as databases:
        yield databases


@pytest.fixture
def rota_test(rota_app: App, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A `rota.testing.Harness`: the App on a database of this test alone; in a project of Django
    with pytest-django in the transaction of the test, or in Django's test database."""
    from rota.testing.harness import Harness  # noqa: PLC0415 - see the head

    if rota_app._is_tested_by_its_framework and request.config.pluginmanager.hasplugin("django"):
        request.getfixturevalue("db")
        with Harness(rota_app) as harness:
            yield harness
        return
    databases: TestDatabases = request.getfixturevalue("rota_databases")
    with databases.make_one() as url, Harness(rota_app, url) as harness:
        yield harness
