"""The files of testing.md and testing-in-a-transaction.md are a project whose tests pass, with the
plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reader import read_page
from tests.support.server import PostgresServer
from tests.testing.pytest_project import PytestProject

PAGE = read_page("testing.md") + read_page("testing-in-a-transaction.md")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES = {block.splitlines()[0].removeprefix("# "): block for block in BLOCKS}


@pytest.fixture
def project(tmp_path: Path, server: PostgresServer) -> PytestProject:
    return PytestProject(tmp_path, ROTA_TEST_DATABASE_URL=server.url())


def test_every_file_of_the_page_passes(project: PytestProject) -> None:
    assert len(FILES) == len(BLOCKS)
    for name, text in FILES.items():
        project.write(name, text)
    ran = project.test()
    count = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for text in BLOCKS)
    assert (ran.status, f"{count} passed" in ran.out) == (0, True), ran.out


def test_the_quick_start_needs_nothing_else(project: PytestProject) -> None:
    [toml] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    project.configure(toml)
    for name in ("shop.py", "test_shop.py"):
        project.write(name, FILES[name])
    ran = project.test()
    assert (ran.status, "1 passed" in ran.out) == (0, True), ran.out
