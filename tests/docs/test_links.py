"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, target)] == []


def test_each_page_with_a_block_of_code_has_a_test_that_reads_it() -> None:
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    with_blocks = {
        page.name for page in PAGES if re.search(r"^```\w", page.read_text(), re.MULTILINE)
    }
    assert {name for name in with_blocks if name not in tests} == set()


def links(page: Path) -> Iterator[str]:
    """The targets of its links within the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.exists() and (not heading or heading in headings(found))


def headings(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
