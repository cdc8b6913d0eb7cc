"""What the pages name is there: links, files, commands, messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rota.cli import run
from tests.docs.reader import ROOT, list_files, read_page
from tests.docs.test_pages import PAGES

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PARTS = {"tutorial", "how-to", "operate", "understand", "reference", "project"}
ROOMS = [ROOT, *(ROOT / "src/rota" / room for room in ("", "store", "store/schema"))]
ROOM = re.compile(
    r"(?<![\w/.:-])(?:[a-z_]+/)+(?:[a-z_0-9]+\.(?:py|sql))?(?=[`<\s\"]|$)", re.MULTILINE
)
OF_JOBS = {"mail", "invoices", "stock", "webhook"}
"""Commands that an App has of its jobs."""
LEAST = 12
"""Letters of its own that a text must have to be what a page quotes."""


def test_the_links_of_the_pages_lead_to_files_and_headings_that_are_there() -> None:
    results = (ROOT / "bench/results").glob("*.md")
    for page in [*PAGES, *results, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text()):
            path, _, heading = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), (page, target)
            assert not heading or heading in read_headings(found), (page, target)


@cache
def read_headings(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_index_lists_each_page_and_a_page_has_a_name_of_its_own() -> None:
    listed = re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "README.md").read_text())
    found = {(DOCS / link).resolve() for link in listed}
    pages = {page for page in DOCS.rglob("*.md") if not re.match(r"0\d+-", page.name)}
    assert {page for page in found if DOCS in page.parents} == pages - {DOCS / "README.md"}
    assert {page.relative_to(DOCS).parts[0] for page in pages} - {"README.md"} == PARTS
    names = [page.name for page in DOCS.rglob("*.md") if page.name != "README.md"]
    assert len(names) == len({*names})


PAGES_OF = {
    "from-celery": ("from-celery-and-rq.md", "From Celery"),
    "from-rq": ("from-celery-and-rq.md", "From RQ"),
    "flask": ("web-frameworks.md", "Flask"),
    "starlette": ("web-frameworks.md", "FastAPI", "Starlette"),
}
"""The page of an example and its sections, if it is not one that is called like the example."""
OF_FASTAPI = {"tests/test_plain.py"}
"""What the site of Starlette does not take from that of FastAPI."""


@pytest.mark.parametrize("place", ["flask", "starlette", *sorted(EXAMPLES.glob("from/*"))], ids=str)
def test_a_page_shows_the_files_of_its_example_as_they_are(place: str | Path) -> None:
    folder = EXAMPLES / place
    files = [
        file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    ]
    name = "-".join(folder.relative_to(EXAMPLES).parts)
    page, *sections = PAGES_OF.get(name, (f"{name}.md", None))
    shown: dict[str, str] = {}
    for section in sections:
        shown |= list_files(read_page(page, section))
    assert {str(file.relative_to(folder)): file.read_text() for file in files} == {
        name: text for name, text in shown.items() if name not in OF_FASTAPI
    }


def test_a_recipe_is_on_its_page_as_it_is() -> None:
    for file in EXAMPLES.glob("how-to/*.py"):
        page = read_page(f"{file.stem.replace('_', '-')}.md")
        assert list_files(page)[file.name] == file.read_text(), file


def test_the_commands_that_the_pages_name_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(
        page.read_text() for page in PAGES if not {"project", "reference"} & {*page.parts}
    )
    named = {line.split()[1] for line in re.findall(r"`(rota\s[a-z][^`]*)`", text)} - OF_JOBS
    assert [command for command in sorted(named) if run([command, "--help"]) != 0] == []


@pytest.mark.parametrize("page", ["design.md", "internals.md"])
def test_each_file_and_room_that_the_page_names_exists(page: str) -> None:
    named = set(ROOM.findall(read_page(page)))
    assert {name for name in named if not any((room / name).exists() for room in ROOMS)} == set()


def test_the_design_lists_the_layers_that_are_enforced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    enforced = project["tool"]["importlinter"]["contracts"][0]["layers"]
    [block] = re.findall(r"above:\n\n((?:    .*\n)+)", read_page("design.md"))
    listed = [line.partition("(")[0] for line in block.splitlines()]
    assert [{*re.findall(r"\w+", line)} for line in listed] == [
        {*re.findall(r"\w+", layer)} for layer in enforced[1:]
    ]


def test_each_message_of_troubleshooting_is_one_of_the_code() -> None:
    """It is a part of a text, or a text with something for each …: so people find its line."""
    page = read_page("troubleshooting.md").partition("## No message")[0]
    texts = {text for file in (ROOT / "src/rota").rglob("*.py") for text in read_texts(file)}
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert [message for message in messages if not is_said(message, texts)] == []
    assert not is_said("the database is on holiday until …", texts)


def read_texts(file: Path) -> Iterator[str]:
    """The texts of a module, with … for what is filled in."""
    joined = re.sub(r'"\s*\n\s*[fr]*"', "", file.read_text())
    for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined):
        if len(text := re.sub(r"\{[^{}]*\}", "…", text)) >= LEAST + text.count("…"):
            yield text


def is_said(message: str, texts: set[str]) -> bool:
    return any(has_parts(text, message) or has_parts(message, text) for text in texts)


def has_parts(text: str, other: str) -> bool:
    """Whether a text has what stands between the … of another one, in order."""
    at = 0
    return all((at := text.find(part, at)) >= 0 for part in other.split("…"))
