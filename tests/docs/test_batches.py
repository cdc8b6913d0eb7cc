"""The blocks of batches.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("batches.md")
MANY, RESULTS, ONE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[SHELL] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@rule("M72")
def test_the_batch_of_the_page_binds_its_report_and_a_job_follows_another(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app, "PAGES": [], "BOUND": []}
    exec(MANY, names)
    assert capsys.readouterr().out == "0 of 100\n"
    app.sync()
    app.drain()
    assert sorted(names["PAGES"]) == [(7, number) for number in range(100)]
    assert names["BOUND"] == [(7, 100, 0)]
    exec(RESULTS, names)
    app.drain()
    assert [job.result for job in app.find(job_type="add-up")] == [0 + 1 + 4 + 9]
    exec(ONE, names)
    app.drain()
    assert names["PAGES"][-2:] == [(8, 1), (8, 2)]
    app.close()


@rule("M72", "M87")
def test_every_shell_line_of_the_page_works(database: str, tmp_path: Path) -> None:
    _enqueue(database)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    listed, shown, found, cancelled = (
        command.ok(*shlex.split(line)[1:]).out for line in SHELL.splitlines()
    )
    assert "100" in listed
    assert "0 of 100 have ended" in shown
    assert found == "no jobs found\n"
    assert cancelled == "cancelled, or asked to stop: 100 jobs\n"
    assert command.ok("batches", "show", "1", "--json").json["total"] == 100


def _enqueue(database: str) -> None:
    app = rota.App(database)
    exec(MANY, {"app": app, "PAGES": [], "BOUND": []})
    app.close()
