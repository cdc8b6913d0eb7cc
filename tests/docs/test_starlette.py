"""starlette.md, followed by a reader: an application with its worker, and its test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reader import Reader, assert_quoted, read_page
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = [pytest.mark.system]


@pytest.mark.slow
@rule("M1", "M20")
def test_a_reader_of_the_page_has_a_site_whose_jobs_run_in_its_process(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    with Reader(tmp_path, server, empty_database) as reader:
        reader.follow(read_page("starlette.md"))


def test_the_page_shows_the_files_of_the_example() -> None:
    assert_quoted(read_page("starlette.md"), "starlette")
