"""The nine chapters of the tutorial, followed by a reader from the first to the last; and the
example that is one file."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.docs.reader import ROOT, Reader, read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer

CHAPTERS = (
    "1-first-job.md", "2-when-it-fails.md", "3-with-your-data.md", "4-test-it.md",
    "5-every-night.md", "6-progress-and-cancel.md", "7-harmless-twice.md", "8-deploy.md",
    "9-three-in-the-morning.md",
)  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@rule("M1", "M20", "M70", "M71", "M72")
@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.skipif(CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: nobody sees the dashboard")
def test_a_reader_of_the_tutorial_gets_through_all_chapters(
    server: PostgresServer, database: str, place: Path
) -> None:
    # The pages show the ids of jobs: the schedule must not enqueue one meanwhile.
    night = f"0 {(datetime.now(UTC).hour + 12) % 24} * * *"
    pages = "".join(map(read_page, CHAPTERS)).replace("0 2 * * *", night)
    with Reader(place, server, database) as reader:
        # A private server starts for each command: test_pages.py follows the first chapter on one.
        reader.set("ROTA_DATABASE_URL", database)
        reader.environment["COLUMNS"] = "80"  # what the chapters show
        reader.left = re.sub(
            r"^using a private .*\n.*applied 0001.*\n", "", pages, flags=re.MULTILINE
        )
        reader.follow_to("Open http://127.0.0.1:8080")
        retry_in_a_browser(reader)
        reader.follow(reader.left)


def retry_in_a_browser(reader: Reader) -> None:
    """Do what the last chapter says to do there."""
    password = reader.environment["ROTA_WEB_TOKEN"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(http_credentials={"username": "ann", "password": password})
        page.goto(f"http://127.0.0.1:{reader.ports['8080']}")
        page.get_by_role("link", name="2 dead").wait_for()
        page.get_by_role("link", name="Errors", exact=True).click()
        row = page.get_by_role("row").filter(has_text="KeyError")
        row.get_by_role("link", name="2", exact=True).click()
        page.get_by_role("button", name="Retry…").click()
        page.get_by_label("Why").fill("release 3 knows what to do with de")
        page.get_by_role("button", name="Retry 2").click()
        page.get_by_text("2 of 2").wait_for()
        browser.close()


def test_the_files_after_each_chapter_are_those_that_it_shows(
    server: PostgresServer, place: Path
) -> None:
    with Reader(place, server, server.url()) as reader:
        reader.languages = dict.fromkeys(reader.languages, len)  # it only writes the files
        for number, name in enumerate(CHAPTERS, 1):
            reader.follow(read_page(name))
            for file in (ROOT / "docs/tutorial/files" / f"chapter_{number}").iterdir():
                text = (place / file.name).read_text()
                head = re.compile(rf"^# {file.name}(, at the end)?\n", re.MULTILINE)
                assert head.sub("", text) == file.read_text(), file


@rule("M80")
@pytest.mark.nightly
@pytest.mark.system
def test_one_file_and_one_line_of_cron_are_enough(empty_database: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "cron" / "night.py", tmp_path)
    said = (tmp_path / "night.py").read_text()
    old, new = tmp_path / "done" / "old.csv", tmp_path / "inbox" / "a.csv"
    for file in (old, new):
        file.parent.mkdir()
        file.touch()
        os.utime(file, (0, 0))
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database, ROTA_APP="night:app")
    migrate, drain, _ = re.findall(r"\brota ((?:migrate|work|enqueue)[^`\n]*)", said)
    rota.ok(*migrate.split())
    for _ in range(2):  # the second one is the same job
        rota.ok("enqueue", "take_in", "--payload", '{"name": "a.csv"}')
    rota.ok("schedules", "trigger", "nightly")
    assert rota.ok(*drain.split()).out.startswith("claimed 2, succeeded 2")
    assert not old.exists()
    assert (tmp_path / "done" / "a.csv").exists() is not new.exists()
