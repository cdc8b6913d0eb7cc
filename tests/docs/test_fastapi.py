"""fastapi.md, followed by a reader: two applications, their workers and their tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reader import Reader, read_page
from tests.support.rules import rule
from tests.support.server import PostgresServer

# Trio, if it is installed, is another backend of anyio's; asyncpg has none.
ANYIO = """

@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
"""

pytestmark = [pytest.mark.system, pytest.mark.slow]


@rule("M1", "M20")
@pytest.mark.parametrize(
    ("section", "driver"),
    [
        ("With SQLAlchemy", "asyncpg"),
        # tests/store/conformance has all that this driver does otherwise.
        pytest.param("With SQLAlchemy", "psycopg", marks=pytest.mark.long),
        ("With asyncpg", "asyncpg"),
    ],
)
def test_a_reader_of_the_page_has_a_site_whose_jobs_commit_with_its_rows(
    section: str, driver: str, server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    page = read_page("fastapi.md", section).replace("postgresql+asyncpg", f"postgresql+{driver}")
    with Reader(tmp_path, server, empty_database) as reader:
        reader.follow(page)


def test_the_tests_of_the_page_run_under_anyio_too(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    page = read_page("fastapi.md", "With SQLAlchemy")
    page = re.sub(r"^```(sh|text)\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"^asyncio_default.*\n", "", page, flags=re.MULTILINE)
    with Reader(tmp_path, server, empty_database) as reader:
        reader.follow(page.replace("asyncio_mode", "anyio_mode"))
        reader.environment["PYTEST_ADDOPTS"] = "-p no:cacheprovider -p no:asyncio"
        conftest = reader.place / "tests" / "conftest.py"
        conftest.write_text(conftest.read_text() + ANYIO)
        assert "2 passed" in reader.type("pytest")
