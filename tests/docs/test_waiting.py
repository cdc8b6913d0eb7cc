"""The blocks of waiting.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import make_context
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("waiting.md")
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


@rule("M3", "M11")
def test_every_shell_line_of_the_page_says_what_the_report_waits_for(
    database: str, tmp_path: Path
) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app}
    exec(CODE, names)
    app.sync()
    # Nobody runs the pages.
    names["make_page"].using(queue="later").enqueue(7, 3)
    app.drain(queues={"default": 5})
    app.close()
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    listed, shown, found = (command(*shlex.split(line)[1:]).out for line in SHELL.splitlines())
    assert "report" in listed
    assert "for job 2 (queued); 1 of 3 have not ended" in shown
    assert "1 job waits for other jobs to end" in found


async def test_a_unit_test_gives_a_handler_its_results(database: str) -> None:
    app = rota.App(database)
    names: dict[str, Any] = {"app": app}
    exec(CODE.rpartition("\n\n")[0], names)
    app.sync()
    with pytest.raises(rota.WaitFor) as asked:
        await names["make_report"](make_context(), 7)
    told = [
        rota.records.JobResult(id_, id_, "succeeded", f'"{page}"')
        for id_, page in zip(asked.value.jobs, PAGES, strict=True)
    ]
    assert await names["make_report"](make_context(results=told), 7) == PAGES
    await app.aclose()
