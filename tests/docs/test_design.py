"""design.md and internals.md name files that exist, and the layers that are enforced."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.reader import read_page

ROOT = Path(__file__).parents[2]
DESIGN = read_page("design.md")
PATH = re.compile(
    r"(?<![\w/.:-])(?:[a-z_]+/)+(?:[a-z_0-9]+\.(?:py|sql))?(?=[`<\s\"]|$)", re.MULTILINE
)


@pytest.mark.parametrize("page", ["design.md", "internals.md"])
def test_each_file_and_room_that_the_page_names_exists(page: str) -> None:
    places = [ROOT, ROOT / "src/rota", ROOT / "src/rota/store", ROOT / "src/rota/store/schema"]
    named = set(PATH.findall(read_page(page)))
    assert len(named) >= (30 if page == "design.md" else 1)
    assert {path for path in named if not any((place / path).exists() for place in places)} == set()


def test_the_page_lists_the_layers_that_are_enforced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    enforced = project["tool"]["importlinter"]["contracts"][0]["layers"]
    block = re.search(r"above:\n\n((?:    .*\n)+)", DESIGN)
    assert block is not None
    listed = [line.partition("(")[0] for line in block[1].splitlines()]
    assert [rooms(line) for line in listed] == [rooms(layer) for layer in enforced[1:]]


def rooms(layer: str) -> set[str]:
    """The rooms of one layer, in the notation of import-linter or of the page."""
    return set(re.findall(r"\w+", layer))
