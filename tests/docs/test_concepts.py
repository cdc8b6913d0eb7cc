"""The block of docs/concepts.md is a job type."""

from __future__ import annotations

import re
from pathlib import Path

import rota

PAGE = (Path(__file__).parents[2] / "docs/concepts.md").read_text(encoding="utf-8")


def test_the_handler_of_the_page_is_declared_as_it_says() -> None:
    jobs = rota.Jobs()
    [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(block, {"jobs": jobs})  # the page is ours
    [(name, declared)] = jobs.types.items()
    assert (name, declared.options.process is not None) == ("render_report", True)
