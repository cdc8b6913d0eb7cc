"""The site of the documentation, made as `make site` does and looked at in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.docs.reader import ROOT
from tests.support.guard import locked

DOCS = ROOT / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WORDS_MAX = 900
"""Of prose on a page outside of Reference and Project; a table is looked up, not read."""
WIDTHS = (400, 1_000, 1_920)
"""Two pages of each part are seen at all of them, the others at the smallest."""
PARTS = ("tutorial", "how-to", "operate", "understand", "reference", "project")

pytestmark = [pytest.mark.system, pytest.mark.slow]
looks = pytest.mark.skipif(
    CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: the site is not looked at"
)


class Quiet(SimpleHTTPRequestHandler):
    """A web server of files that logs nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


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


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    """Where it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser that asks for nothing by itself."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


def open_page(browser: Browser, url: str, path: str, **options: object) -> tuple[Page, list[str]]:
    """Open a page; return it, and what the browser complains of or asks of others."""
    complaints: list[str] = []
    page = browser.new_page(**options)  # type: ignore[arg-type]
    page.on("console", lambda said: complaints.extend([said.text] * (said.type == "error")))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda ask: complaints.extend([ask.url] * (not ask.url.startswith(url))))
    page.goto(f"{url}/{path}")
    page.wait_for_load_state("networkidle")
    return page, complaints


def listed() -> list[Path]:
    """The pages that the index of the documentation lists."""
    found = re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "README.md").read_text("utf-8"))
    return [(DOCS / one).resolve() for one in found]


def test_the_index_lists_each_page_once() -> None:
    named = [page for page in listed() if DOCS in page.parents]
    named.remove(DOCS / "tutorial/1-first-job.md")  # the text on top leads to it, too
    decisions = DOCS / "project/decisions"
    pages = {page for page in DOCS.rglob("*.md") if not re.match(r"0\d+-", page.name)}
    assert {*named} == pages - {DOCS / "README.md"} and len({*named}) == len(named)
    assert decisions / "README.md" in named
    assert {page.relative_to(DOCS).parts[0] for page in named} == {*PARTS}


def test_a_page_has_a_name_of_its_own() -> None:
    names = [page.name for page in DOCS.rglob("*.md") if page.name != "README.md"]
    assert len(names) == len({*names})


@pytest.mark.parametrize("part", PARTS[:4])
def test_a_page_has_one_subject_and_not_too_many_words(part: str) -> None:
    long = {}
    for page in (DOCS / part).glob("*.md"):
        prose = re.sub(r"^```.*?^```$|^\|[^\n]*$", "", page.read_text("utf-8"), flags=re.S | re.M)
        if len(prose.split()) > WORDS_MAX:
            long[page.name] = len(prose.split())
    assert long == {}


def test_each_page_that_was_elsewhere_leads_to_where_it_is(site: Path) -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    moved = config["project"]["plugins"]["redirects"]["redirect_maps"]
    assert len(moved) > 40
    for old, new in moved.items():
        assert (DOCS / new.partition("#")[0]).is_file(), new
        text = (site / old.removesuffix(".md") / "index.html").read_text("utf-8")
        leads = re.search('<a href="([^"]+)"', text)
        assert leads and (site / old.removesuffix(".md") / leads[1].partition("#")[0]).is_dir(), old


def test_the_list_for_machines_says_what_each_page_is_about(site: Path) -> None:
    lines = re.findall(r"^- \[.+\]\((.+)\): (.*)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {place for place, _ in lines} > {"how-to/django/", "project/changelog/"}
    for place, sentence in lines:
        assert (site / place / "index.html").is_file(), place
        assert len(sentence) > 20 or place.startswith("project/"), (place, sentence)


@looks
@pytest.mark.parametrize("part", PARTS)
def test_pages_need_nothing_from_elsewhere_and_no_page_is_wider_than_its_window(
    browser: Browser, url: str, part: str
) -> None:
    pages = ["", *(f"{one.relative_to(DOCS).with_suffix('')}/" for one in sorted(listed())
                   if DOCS / part in one.parents and "README" not in one.name)]  # fmt: skip
    page, complaints = open_page(browser, url, "", viewport={"width": WIDTHS[0], "height": 900})
    for at, path in enumerate(pages):
        page.goto(f"{url}/{path}")
        for width in WIDTHS if at < 2 else WIDTHS[:1]:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} has {wide} pixels in {width}"
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.wait_for_load_state("networkidle")
    assert complaints == []
    page.close()


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(browser: Browser, url: str, scheme: str) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    for part in PARTS:
        first = next(one for one in listed() if one.parent == DOCS / part)
        path = f"{first.relative_to(DOCS).with_suffix('')}/"
        page, complaints = open_page(browser, url, path, color_scheme=scheme)
        page.evaluate(axe)
        # The theme makes a landmark without a name of each button that copies; the corner of a
        # table may be empty.
        unasked = ("landmark-unique", "empty-table-header")
        options = json.dumps({"rules": {one: {"enabled": False} for one in unasked}})
        found = page.evaluate(f"axe.run('article', {options}).then(all => all.violations)")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
        assert complaints == []
        page.close()


@looks
@pytest.mark.parametrize(
    ("asked", "part"), [("dead letter", ""), ("celery", "how-to"), ("exactly once", "understand")]
)
def test_the_search_finds(browser: Browser, url: str, asked: str, part: str) -> None:
    page, complaints = open_page(browser, url, "")
    page.keyboard.press("/")
    page.keyboard.type(asked)
    page.locator(f"a[href*='/{part}'][href*='?h=']").first.wait_for()
    assert complaints == []
    page.close()
