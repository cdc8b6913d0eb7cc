"""The pictures of the pages are what `make pictures` makes."""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

import pytest

from scripts import drawings, screens
from tests.docs.test_pages import PAGES

PICTURES = {file.stem: file for file in drawings.PICTURES.glob("*.svg")}
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]*/)?pictures/([\w-]+)\.svg\)")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_pictures_are_what_the_script_draws() -> None:
    drawn = {drawings.name_of(draw): draw().text() for draw in drawings.DRAWN}
    assert drawn == {name: file.read_text("utf-8") for name, file in PICTURES.items()}


@pytest.mark.nightly
def test_the_screens_are_what_the_commands_print(database: str) -> None:
    screens.play(database)
    for name in screens.COMMANDS:
        shown, file = screens.show(database, name), screens.SCREENS / f"{name}.txt"
        if os.environ.get("WRITE_SNAPSHOTS"):
            file.write_text(shown, encoding="utf-8")
        assert shown == file.read_text("utf-8"), f"make pictures: {name} prints something else"


def test_a_picture_stands_alone_and_is_on_a_page_with_its_title_as_its_text() -> None:
    for name, file in PICTURES.items():
        root = ElementTree.fromstring(text := file.read_text("utf-8"))
        title, about = (root.find(f"{SVG}{tag}") for tag in ("title", "desc"))
        assert title is not None and about is not None, name
        assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
        assert re.findall(r"https?:|url\(|<image|<script", text) == ["http:"]  # the namespace
    found = [picture for page in PAGES for picture in SHOWN.findall(page.read_text("utf-8"))]
    titles = {drawings.name_of(draw): draw().title for draw in drawings.DRAWN}
    assert {name for _, _, name in found} == {*PICTURES}
    assert {(name, alt) for alt, _, name in found} == {*titles.items()}


def test_the_picture_of_effects_is_the_table_of_the_page() -> None:
    [page] = {text for page in PAGES if "| the first attempt ends" in (text := page.read_text())}
    rows = re.findall(r"^\| (?:before|after) .*$", page, re.MULTILINE)
    cells = [re.findall(r"sent (\d) times?, (\w+)", row) for row in rows]
    by_policy = [
        [(int(times), end) for times, end in column] for column in zip(*cells, strict=True)
    ]
    assert by_policy == [[*row] for row in drawings.EFFECTS.values()]
