"""The dashboard in a real browser: every page, with and without JavaScript, narrow and wide."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Literal, TypeVar

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import rota
from tests.dashboard.conftest import HOSTILE, Serve, Site
from tests.support.rules import rule

T = TypeVar("T")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGES = (
    "/", "/jobs", "/dead", "/errors", "/many/archive?status=dead", "/queues", "/schedules",
    "/schedules/nightly", "/workers", "/types", "/batches", "/batches/1", "/groups", "/limits",
    "/breakers", "/effects", "/statistics", "/log", "/alerts", "/doctor", "/jobs/2",
)  # fmt: skip
TYPICAL = (
    "/", "/jobs", "/jobs/2", "/many/archive?status=dead", "/queues", "/schedules/nightly",
    "/schedules", "/batches/1", "/statistics", "/doctor",
)  # fmt: skip
"""Those that have each form, table, figure and colour; a look at all takes twice as long."""
WIDTHS = (400, 1_920)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: no page is looked at"),
]


@pytest.fixture
def browser(site: Site) -> Iterator[Browser]:
    """A browser; its driver has a loop in this thread, so that Rota is called in another."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def site(app: rota.App, serve: Serve) -> Site:
    greet = app.types["greet"]
    greet.enqueue(1, "ok")
    greet.enqueue(2, "dies")
    app.drain()
    greet.using(delay="1h").enqueue(3, HOSTILE.replace("\x1b", ""))
    return serve("asgi")


def apart(call: Callable[[], T]) -> T:
    """Call something in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def open_page(browser: Browser, site: Site, path: str, **options: object) -> tuple[Page, list[str]]:
    """Open a page; return it, and what the browser complains of."""
    complaints: list[str] = []
    page = browser.new_page(**options)  # type: ignore[arg-type]
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(site.url + path)
    return page, complaints


@pytest.mark.nightly
@rule("M85")
def test_no_page_breaks_a_rule_of_accessibility_its_own_security_or_its_width(
    app: rota.App, browser: Browser, site: Site
) -> None:
    apart(lambda: app.batch([app.types["greet"].new(4, "in a batch")]))
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    page, complaints = open_page(browser, site, "/")
    for path in PAGES:
        page.goto(site.url + path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert complaints == [], path
        if path in TYPICAL:
            scheme = SCHEMES[TYPICAL.index(path) % 2]
            page.emulate_media(color_scheme=scheme)
            page.evaluate(axe)
            found = page.evaluate("axe.run()")["violations"]
            assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found] == [], (
                path,
                scheme,
            )
    page.close()


@rule("M44", "M87")
def test_a_dead_job_is_found_fixed_and_seen_to_succeed(
    app: rota.App, browser: Browser, site: Site
) -> None:
    page, complaints = open_page(browser, site, "/")
    page.get_by_role("link", name="1 dead").click()
    page.get_by_role("link", name="2", exact=True).click()
    assert "cannot greet <script>" in page.locator("main").inner_text()
    page.get_by_text("Retry with other arguments").click()
    page.get_by_label("Arguments").fill('{"user_id": 2, "name": "Ada"}')
    page.locator(".fix").get_by_label("Why").fill("a typo")
    page.get_by_role("button", name="Retry with these").click()
    page.wait_for_url("**/jobs/4")
    assert page.locator("h1 .badge").inner_text() == "queued"
    apart(app.drain)
    page.get_by_text("succeeded").first.wait_for()  # the page looks again by itself
    page.get_by_role("link", name="Log", exact=True).click()
    assert "a typo" in page.locator("table").inner_text()
    assert complaints == []


@rule("M85")
def test_an_open_page_is_kept_new_and_what_one_holds_stays(
    app: rota.App, browser: Browser, site: Site
) -> None:
    page, complaints = open_page(browser, site, "/jobs")
    page.get_by_label("job 3").check()
    page.locator("#chosen").get_by_label("Why").fill("half of a sen")
    apart(lambda: app.types["greet"].using(delay="1h").enqueue(4, "new"))
    page.get_by_label("job 4").wait_for()
    assert page.locator(":checked[name=job]").evaluate_all("all => all.map(one => one.value)") == [
        "3"
    ]
    assert page.evaluate("document.activeElement.value") == "half of a sen"

    page.goto(site.url + "/jobs/3")
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("button", name="Pause").click()
    apart(lambda: app.cancel(3, why="not wanted"))
    with page.expect_response("**/jobs/3"):
        page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Run again").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert page.locator("h1 .badge").inner_text() == "cancelled"

    page.goto(site.url + "/jobs/2")
    page.get_by_text("Retry with other arguments").click()
    page.get_by_label("Arguments").fill("{")
    with page.expect_response("**/jobs/2"):
        pass
    with page.expect_response("**/jobs/2"):
        pass  # the first of them is on the page
    assert page.get_by_label("Arguments").input_value() == "{"
    assert page.get_by_label("Arguments").is_visible()
    assert complaints == []


@pytest.mark.nightly
@rule("M44", "M87")
def test_the_dead_jobs_of_an_error_are_archived_without_javascript(
    app: rota.App, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.ops.ACTION_MAX", 2)
    greet = app.types["greet"]
    apart(lambda: app.enqueue_many([greet.new(number, "dies") for number in range(10, 14)]))
    apart(app.drain)
    page, complaints = open_page(browser, site, "/", java_script_enabled=False)
    page.get_by_role("row").filter(has_text="cannot greet").get_by_role("link", name="5").click()
    page.get_by_role("button", name="Archive…").click()
    page.get_by_label("Why").fill("of a test")
    page.get_by_role("button", name="Archive 5").click()
    while page.get_by_role("button", name="Continue").count():
        page.get_by_role("button", name="Continue").click()
    page.get_by_text("5 of 5 jobs done").wait_for()
    assert apart(lambda: app.find(status="dead")) == []
    assert complaints == []
