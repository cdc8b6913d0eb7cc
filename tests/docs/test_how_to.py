"""The recipes of docs/how-to: each page shows a file of examples/how-to as it is, and is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reader import ROOT, list_files

EXAMPLES = ROOT / "examples" / "how-to"
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
WORDS_MAX = 900


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.*")), ids=lambda file: file.name)
def test_a_recipe_is_on_its_page_as_it_is(file: Path) -> None:
    page = ROOT / "docs" / "how-to" / f"{file.stem.replace('_', '-')}.md"
    assert list_files(page.read_text(encoding="utf-8"))[file.name] == file.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= WORDS_MAX
