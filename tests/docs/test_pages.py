"""Each page is followed by a reader: what it shows works, and prints what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import how_to, operate, reference, understand  # noqa: F401
from tests.docs.reader import ROOT, Reader
from tests.docs.supposed import FOLLOWED, NIGHTLY
from tests.support.rules import rule
from tests.support.server import PostgresServer

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {
    # Several pages are of one application.
    "docs/test_django.py": "django django-tasks",
    "docs/test_tutorial.py": "2-when-it-fails 3-with-your-data 4-test-it 5-every-night "
    "6-progress-and-cancel 7-harmless-twice 8-deploy 9-three-in-the-morning",
    # They need another library, or several servers.
    "docs/test_from.py": "from-celery-and-rq from-apscheduler from-procrastinate from-cron",
    "system/test_standby.py": "read-replicas",
    # Their blocks are one story of a worker in SQL, or a contract of its own.
    "store/test_shell_worker.py": "sql-worker",
    "store/test_sql_contract.py": "sql-actions sql-enqueue-and-read tables-and-sql",
}
"""The pages that another test follows."""
SHOP = """
import rota

app = rota.App()


@app.job
def pack(order: int) -> None: ...
"""
"""What a page supposes that shows no shop of its own."""


def list_pages() -> Iterator[object]:
    """The pages with blocks that are followed here."""
    elsewhere = {f"{name}.md" for names in ELSEWHERE.values() for name in names.split()}
    for page in PAGES:
        if re.search(r"^```\w", page.read_text(), re.MULTILINE) and page.name not in elsewhere:
            marks = [pytest.mark.nightly] * (page.name in NIGHTLY)
            yield pytest.param(page, id=page.name, marks=marks)


@rule("M3", "M15", "M80", "M87")
@pytest.mark.system
@pytest.mark.parametrize("page", [*list_pages()])
def test_a_page_does_what_it_says(
    page: Path, server: PostgresServer, database: str, place: Path
) -> None:
    with Reader(place, server, database) as reader:
        reader.set("ROTA_DATABASE_URL", database)
        reader.left = page.read_text()
        if not re.search(r"^# shop/|\btool\.rota\b", reader.left, re.MULTILINE):
            reader.set("ROTA_APP", "shop:app")
            if "# shop.py\n" not in reader.left:
                reader.write("shop.py", SHOP)
        FOLLOWED.get(page.name, Reader.follow_rest)(reader)
        reader.follow_rest()


def test_a_page_that_is_followed_elsewhere_is_named_there() -> None:
    for test, names in ELSEWHERE.items():
        text = (ROOT / "tests" / test).read_text()
        assert [name for name in names.split() if f"{name}.md" not in text] == [], test
    assert {page.name for page in PAGES} >= FOLLOWED.keys()
