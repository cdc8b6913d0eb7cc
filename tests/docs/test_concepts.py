"""The blocks of docs/concepts.md work."""

from __future__ import annotations

import re
from pathlib import Path

import rota

PAGE = (Path(__file__).parents[2] / "docs/concepts.md").read_text(encoding="utf-8")
EXAMPLE, IN_A_PROCESS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_the_page_runs_its_job(database: str) -> None:
    app = rota.App(database)
    exec(EXAMPLE, {"app": app})  # the page is ours
    assert app.get(1).result == "hello Ada"
    app.close()


def test_the_handler_of_the_page_is_declared_as_it_says() -> None:
    jobs = rota.Jobs()
    exec(IN_A_PROCESS, {"jobs": jobs})  # the page is ours
    [(name, declared)] = jobs.types.items()
    assert (name, declared.options.process is not None) == ("render_report", True)
