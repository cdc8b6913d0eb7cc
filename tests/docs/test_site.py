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
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize, sync_playwright

from tests.docs.reader import ROOT
from tests.support.guard import locked

DOCS = ROOT / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE: ViewportSize = {"width": 400, "height": 900}
DESK: ViewportSize = {"width": 1_280, "height": 900}
SHOWN = ("tutorial/1-first-job", "how-to/django", "operate/metrics", "reference/limits")
"""Pages with blocks, tables, lists and pictures."""
SHOW = "html => { document.querySelector('article').innerHTML = html }"
ACCESSIBLE = """rules => axe.run('article', {rules}).then(
    all => all.violations.map(one => [one.id, one.nodes[0].html]))"""
UNASKED = {
    rule: {"enabled": False}
    for rule in ("landmark-unique", "scrollable-region-focusable", "empty-table-header")
}
"""The theme makes a landmark without a name of each button that copies, and what scrolls focusable
in a page that is opened; the corner of a table may be empty."""

pytestmark = [pytest.mark.system, pytest.mark.nightly]


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


def test_each_page_that_was_elsewhere_leads_to_where_it_is(site: Path) -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    for old, new in config["project"]["plugins"]["redirects"]["redirect_maps"].items():
        assert (DOCS / new.partition("#")[0]).is_file(), new
        text = (site / old.removesuffix(".md") / "index.html").read_text("utf-8")
        leads = re.search('<a href="([^"]+)"', text)
        assert leads and (site / old.removesuffix(".md") / leads[1].partition("#")[0]).is_dir(), old


def test_the_list_for_machines_says_what_each_page_is_about(site: Path) -> None:
    lines = re.findall(r"^- \[.+\]\((.+)\): (.*)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {place for place, _ in lines} > {"how-to/django/", "project/changelog/"}
    for place, sentence in lines:
        assert (site / place / "index.html").is_file(), place
        assert sentence or place.startswith("project/"), place
    found = {one["location"] for one in json.loads((site / "search.json").read_text())["items"]}
    of_users = {place for place, _ in lines if not place.startswith("project/")}
    assert of_users <= found, "the search finds each page"


@pytest.mark.skipif(CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: the site is not looked at")
def test_pages_fit_a_telephone_and_are_accessible(site: Path) -> None:
    """One page of the site shows the articles of all: to open each costs twenty times as much."""
    texts = {page: page.read_text("utf-8") for page in site.rglob("index.html")}
    articles = {
        str(page.parent.relative_to(site)): found[1]
        for page, text in texts.items()
        if (found := re.search(r"<article[^>]*>(.*?)</article>", text, re.DOTALL))
    }
    with serve(site) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        complaints: list[str] = []
        page = browser.new_page(viewport=PHONE)
        page.on("console", lambda said: complaints.extend([said.text] * (said.type == "error")))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda ask: complaints.extend([ask.url] * (url not in ask.url)))
        page.goto(url)
        page.wait_for_load_state("networkidle")

        def measure(text: str) -> int:
            page.evaluate(SHOW, text)
            return int(page.evaluate("document.documentElement.scrollWidth"))

        assert measure("<div style='width: 700px'>wide</div>") > PHONE["width"]
        assert [one for one, text in articles.items() if measure(text) > PHONE["width"]] == []
        page.set_viewport_size(DESK)
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
        for name in SHOWN:
            page.evaluate(SHOW, articles[name])
            assert page.evaluate(ACCESSIBLE, UNASKED) == [], name
        assert complaints == []
        browser.close()


@contextmanager
def serve(site: Path) -> Iterator[str]:
    """Serve the site; yield where."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
