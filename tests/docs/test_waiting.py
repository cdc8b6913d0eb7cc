"""The blocks of docs/waiting.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import make_context
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = (Path(__file__).parents[2] / "docs/waiting.md").read_text()
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[SHELL] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
PAGES = ["page 1", "page 2", "page 3"]


@rule("M11", "M72")
def test_the_report_of_the_page_goes_on_with_the_results_of_its_pages(database: str) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app}
    exec(CODE, names)
    app.sync()
    app.drain()
    job = app.get(names["report"].id)
    assert job is not None
    assert (job.status, job.result, job.attempts) == ("succeeded", PAGES, 1)
    assert len(app.find(job_type="page")) == 3
    app.close()


@rule("M87")
def test_every_shell_line_of_the_page_works(database: str, tmp_path: Path) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app}
    exec(CODE, names)
    app.sync()
    app.queues.pause("default", why="to see it wait")
    app.close()
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    for line in SHELL.splitlines():
        command(*shlex.split(line)[1:])


async def test_a_unit_test_gives_a_handler_its_results(database: str) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app}
    exec(CODE.rpartition("\n\n")[0], names)
    app.sync()
    with pytest.raises(rota.WaitFor) as asked:
        await names["make_report"](make_context(), 7)
    told = [
        rota.JobResult(id_, id_, "succeeded", f'"{page}"')
        for id_, page in zip(asked.value.jobs, PAGES, strict=True)
    ]
    assert await names["make_report"](make_context(results=told), 7) == PAGES
    await app.aclose()
