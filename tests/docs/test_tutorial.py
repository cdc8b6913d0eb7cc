"""The nine chapters of the tutorial, followed by a reader from the first to the last; and the
example that is one file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.docs.reader import ROOT, Reader, change_files, read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = pytest.mark.system
CHAPTERS = (
    "1-first-job.md", "2-when-it-fails.md", "3-with-your-data.md", "4-test-it.md",
    "5-every-night.md", "6-progress-and-cancel.md", "7-harmless-twice.md", "8-deploy.md",
    "9-three-in-the-morning.md",
)  # fmt: skip
FILES = ROOT / "docs" / "tutorial" / "files"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NIGHT = "0 2 * * *"
IN_A_BROWSER = "Open http://127.0.0.1:8080"
NEW_WORDS_MAX = 3
KEEP = """
import pathlib, sys
from rota import embedded
embedded.start(pathlib.Path(".rota"))
print("runs", flush=True)
sys.stdin.read()
"""


@rule("M1", "M20", "M70", "M71", "M72")
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="CHROMIUM IS NOT INSTALLED: nobody sees the dashboard")
def test_a_reader_of_the_tutorial_gets_through_all_chapters(
    server: PostgresServer, empty_database: str, place: Path
) -> None:
    # The pages show the ids of jobs: the schedule must not enqueue one meanwhile.
    night = f"0 {(datetime.now(UTC).hour + 12) % 24} * * *"
    with Reader(place, server, empty_database) as reader:
        reader.environment["COLUMNS"] = "80"  # what the chapters show
        first, *others = [read_page(name).replace(NIGHT, night) for name in CHAPTERS]
        reader.follow(first)
        with keep_database(place):
            for text in others:
                before, _, after = text.partition(IN_A_BROWSER)
                reader.follow(before)
                if after:
                    retry_in_a_browser(reader)
                    reader.follow(after)
    assert others[-1].count(IN_A_BROWSER) == 1


@contextmanager
def keep_database(place: Path) -> Iterator[None]:
    """Use the private PostgreSQL of a directory, as another terminal would: no command starts and
    stops it for itself."""
    with subprocess.Popen(
        [sys.executable, "-c", KEEP],
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        yield
        process.communicate()


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


def test_the_files_after_each_chapter_are_those_that_it_shows() -> None:
    files: dict[str, str] = {}
    for number, name in enumerate(CHAPTERS, 1):
        files = change_files(files, read_page(name))
        folder = FILES / f"chapter_{number}"
        there = {one.name: one.read_text() for one in folder.iterdir() if one.is_file()}
        assert there == files, name


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_says_first_what_comes_of_it_and_has_few_new_words(name: str) -> None:
    page = read_page(name)
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\*\*[^*]+\*\*", prose)) <= NEW_WORDS_MAX
    assert prose.split("\n\n")[1].startswith("At the end of this chapter ")
    assert "\n## What you learnt\n" in prose
    assert re.search(r"^More: \[|^This is the end of the tutorial\.", prose, re.MULTILINE)


@pytest.mark.slow
def test_the_test_of_chapter_4_fails_without_the_transaction(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    page = read_page("4-test-it.md")
    removed = ".using(connection)"
    assert f"Remove `{removed}`" in page
    with Reader(tmp_path, server, empty_database) as reader:
        copy_chapter(4, tmp_path)
        whole = (tmp_path / "shop.py").read_text()
        assert whole.count(removed) == 1
        reader.write("shop.py", whole.replace(removed, ""))
        said = reader.type("pytest", fails=True)
        assert "FAILED test_shop.py::test_an_order_that_fails_gets_no_receipt" in said
        assert "1 failed, 2 passed" in said


@pytest.mark.slow
@rule("M80")
def test_the_shop_of_chapter_8_is_deployed_with_jobs_of_the_old_code(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    page = read_page("8-deploy.md")
    [settings] = re.findall(r"```sh\n# /srv/shop/rota\.env\n(.*?)```", page, re.DOTALL)
    with Reader(tmp_path, server, empty_database) as reader:
        for line in settings.splitlines():
            reader.type(f"export {line}")
        (tmp_path / "outbox").mkdir()
        copy_chapter(7, tmp_path)
        reader.type('python -c "import shop; shop.create_tables(shop.app.url)"')
        reader.type("rota migrate")
        order = "python -c \"import shop; shop.place_order('fay@example.org', 'green tea')\""
        reader.type(order)
        copy_chapter(8, tmp_path)
        reader.type("rota migrate")
        assert "claimed 1, succeeded 1" in reader.type("rota work --drain")
        assert not (tmp_path / ".rota").exists()
        unit = reader.type("rota crontab --systemd --worker --env-file rota.env")
        assert f"EnvironmentFile={tmp_path}/rota.env" in unit


def copy_chapter(number: int, place: Path) -> None:
    """Copy the files after a chapter."""
    shutil.copytree(FILES / f"chapter_{number}", place, dirs_exist_ok=True)


@pytest.mark.slow
@rule("M80")
def test_one_file_and_one_line_of_cron_are_enough(empty_database: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "cron" / "night.py", tmp_path)
    said = (tmp_path / "night.py").read_text()
    old, new = tmp_path / "done" / "old.csv", tmp_path / "inbox" / "a.csv"
    for file in (old, new):
        file.parent.mkdir()
        file.write_text("1\n2\n")
        os.utime(file, (0, 0))
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database)
    migrate, drain, enqueue = re.findall(r"\brota ((?:migrate|work|enqueue)[^`\n]*)", said)
    rota.ok(*migrate.split())
    assert enqueue.startswith("enqueue take_in --payload '{")
    for _ in range(2):
        rota.ok("enqueue", "take_in", "--payload", '{"name": "a.csv"}', "--app", "night:app")
    rota.ok("schedules", "trigger", "nightly")
    assert rota.ok(*drain.split()).out.startswith("claimed 2, succeeded 2")
    assert not old.exists()
    assert (tmp_path / "done" / "a.csv").exists() is not new.exists()
    new.write_text("3\n")
    assert (
        "queued"
        in rota.ok("enqueue", "take_in", "--payload", '{"name": "a.csv"}', "--app", "night:app").out
    )
