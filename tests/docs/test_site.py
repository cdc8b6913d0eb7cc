"""The site of the documentation, made as `make site` does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reader import ROOT
from tests.support.guard import locked

pytestmark = [pytest.mark.system, pytest.mark.nightly]


@pytest.fixture(scope="module")
def site(run_place: Path) -> Path:
    """The site, made of the pages as they are, once for all processes of the run."""
    made = run_place / "site"
    with locked(run_place / "site.lock"):
        if not made.exists():
            command = [sys.executable, str(ROOT / "scripts/site.py"), str(made)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_the_list_for_machines_says_what_each_page_is_about(site: Path) -> None:
    lines = re.findall(r"^- \[.+\]\((.+)\): (.*)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {place for place, _ in lines} > {"how-to/django/", "project/changelog/"}
    for place, sentence in lines:
        assert (site / place / "index.html").is_file(), place
        assert sentence or place.startswith("project/"), place
    found = {item["location"] for item in json.loads((site / "search.json").read_text())["items"]}
    of_users = {place for place, _ in lines if not place.startswith("project/")}
    assert of_users <= found, "the search finds each page"
