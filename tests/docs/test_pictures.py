"""The pictures of the pages: they are what `make pictures` makes, and they can be read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, sync_playwright

from rota.model.job import Status
from scripts import drawings, screens
from scripts.svg import KINDS, PALETTE, Picture
from tests.docs.reader import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = {file.stem: file for file in drawings.PICTURES.glob("*.svg")}
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]*/)?pictures/([\w-]+)\.svg\)")
BYTES_MAX = 60_000
CONTRAST_MIN = 4.5
"""Source: WCAG 2.2, 1.4.3, for text of a usual size."""
PHONE_PX, TEXT_PX_MIN = 368, 8
"""The width of a page on a telephone, and the least size of text there."""
SVG = "{http://www.w3.org/2000/svg}"

looks = pytest.mark.skipif(
    CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: no picture is looked at"
)


def test_the_pictures_are_what_the_script_draws() -> None:
    drawn = {drawings.name_of(draw): draw().text() for draw in drawings.DRAWN}
    assert drawn == {name: file.read_text("utf-8") for name, file in PICTURES.items()}


def test_the_screens_are_what_the_commands_print(database: str) -> None:
    screens.play(database)
    for name in screens.COMMANDS:
        shown, file = screens.show(database, name), screens.SCREENS / f"{name}.txt"
        if os.environ.get("WRITE_SNAPSHOTS"):
            file.write_text(shown, encoding="utf-8")
        assert shown == file.read_text("utf-8"), f"make pictures: {name} prints something else"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_stands_alone_and_says_what_it_shows(name: str) -> None:
    text = PICTURES[name].read_text("utf-8")
    root = ElementTree.fromstring(text)
    title, about = (root.find(f"{SVG}{tag}") for tag in ("title", "desc"))
    assert title is not None
    assert about is not None
    assert (title.text or "") != (about.text or "")
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    assert re.findall(r"https?:|url\(|<image|<script", text) == ["http:"]  # the namespace
    assert len(text.encode()) < BYTES_MAX


def test_each_picture_is_on_a_page_with_its_title_as_its_text() -> None:
    found = [one for page in PAGES for one in SHOWN.findall(page.read_text("utf-8"))]
    titles = {drawings.name_of(draw): draw().title for draw in drawings.DRAWN}
    assert {name for _, _, name in found} == {*PICTURES}
    assert {(name, alt) for alt, _, name in found} == {*titles.items()}


def test_the_diagram_of_statuses_leaves_no_move_out(monkeypatch: pytest.MonkeyPatch) -> None:
    some = ((Status.RUNNING,), Status.WAITING)
    monkeypatch.delitem(drawings.MOVES, some)
    with pytest.raises(ValueError, match="wait"):
        drawings.states()


def test_the_picture_of_effects_is_the_table_of_the_page() -> None:
    [page] = {text for page in PAGES if "| the first attempt ends" in (text := page.read_text())}
    rows = re.findall(r"^\| (?:before|after) .*$", page, re.MULTILINE)
    cells = [re.findall(r"sent (\d) times?, (\w+)", row) for row in rows]
    by_policy = [
        [(int(times), end) for times, end in column] for column in zip(*cells, strict=True)
    ]
    assert by_policy == [[*row] for row in drawings.EFFECTS.values()]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: int) -> None:
    pairs = [(text, back) for text in ("ink", "dim", *KINDS) for back in ("page", "screen")]
    pairs += [(text, f"{kind}-fill") for kind in KINDS for text in ("ink", kind)]
    pairs += [("page", kind) for kind in ("yours", "bad")]  # the numbers of badges
    faint = [
        (text, back)
        for text, back in pairs
        if contrast(PALETTE[text][scheme], PALETTE[back][scheme]) < CONTRAST_MIN
    ]
    assert faint == []


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours. Source: WCAG 2.2, relative luminance."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                  for part in parts]  # fmt: skip
        return sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_that_does_not_fit_is_an_error() -> None:
    picture = Picture("a title", "about it", height=100)
    with pytest.raises(ValueError, match="too wide for its box"):
        picture.box(10, 10, 60, 40, "much too wide")
    with pytest.raises(ValueError, match="leaves the picture"):
        picture.label(400, 10, "this text leaves the picture")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser, for one test: it leaves a loop in this thread, where plain calls would warn."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@looks
@pytest.mark.system
def test_no_text_covers_another_leaves_the_picture_or_is_too_small(browser: Browser) -> None:
    page = browser.new_page()
    for name, file in PICTURES.items():
        page.set_content(file.read_text("utf-8"))
        width, height = page.evaluate(
            "(box => [box.width, box.height])(document.querySelector('svg').viewBox.baseVal)"
        )
        texts = page.evaluate(
            "[...document.querySelectorAll('text')].filter(one => one.textContent.trim()).map("
            "one => { const box = one.getBBox(); return [one.textContent, box.x, box.y, "
            "box.x + box.width, box.y + box.height, +one.getAttribute('font-size')] })"
        )
        for said, left, up, right, down, size in texts:
            assert left >= 2, (name, said)
            assert right <= width - 2, (name, said)
            assert name == "demo" or (up >= 0 and down <= height), (name, said)
            assert size * min(1, PHONE_PX / width) >= TEXT_PX_MIN, (name, said)
        for one, other in combinations(texts, 2):
            across = min(one[3], other[3]) - max(one[1], other[1])
            along = min(one[4], other[4]) - max(one[2], other[2])
            assert across <= 1 or along <= 5, (name, one[0], other[0])
    page.close()


@looks
@pytest.mark.system
@pytest.mark.parametrize("system", ["light", "dark"])
def test_a_picture_has_the_scheme_of_the_page_around_it(
    browser: Browser, tmp_path: Path, system: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": 300, "height": 200})
    page.emulate_media(color_scheme=system)
    shots = {}
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        (tmp_path / "page.html").write_text(
            f"<body style='color-scheme: {scheme}; margin: 0'><img src='{PICTURES['breaker']}'>"
        )
        page.goto(f"file://{tmp_path}/page.html")
        shots[scheme] = page.screenshot(clip={"x": 4, "y": 4, "width": 250, "height": 140})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"file://{PICTURES['breaker']}")
        assert page.evaluate(
            "getComputedStyle(document.querySelector('svg > rect')).fill"
        ) == css_colour(PALETTE["page"][scheme == "dark"])
        page.emulate_media(color_scheme=system)
    assert shots["light"] != shots["dark"]
    page.close()


def css_colour(colour: str) -> str:
    """Return a colour as a browser says it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


@looks
@pytest.mark.system
def test_the_demo_moves_and_stands_still_for_who_wants_no_motion(browser: Browser) -> None:
    text = PICTURES["demo"].read_text("utf-8")
    count = "document.getAnimations().length"
    moving, still = browser.new_page(), browser.new_page(reduced_motion="reduce")
    moving.set_content(text)
    still.set_content(text)
    assert (moving.evaluate(count), still.evaluate(count)) == (2, 0)
    last = still.locator("text").last.bounding_box()
    frame = still.locator("svg svg").bounding_box()
    assert last is not None
    assert frame is not None
    assert frame["y"] < last["y"] < frame["y"] + frame["height"]
    moving.close()
    still.close()
