"""`rota docs`: what people look for is found, in their own words."""

from __future__ import annotations

import pytest

from rota.cli.docs import answer
from rota.cli.pages import find_root, list_pages, search
from tests.support.rules import rule

ASKED = {
    "job stuck running": "operate/actions",
    "scale workers": "operate/capacity",
    "autoscaling": "operate/capacity",
    "zero downtime deploy": "operate/deploy",
    "fan out": "understand/batches",
    "delay a job": "reference/enqueue-options",
    "dead letter queue": "understand/retries",
    "outbox": "understand/transactions",
    "windows": "operate/production-checklist",
    "exactly once": "understand/at-least-once",
    "celery": "how-to/from-celery-and-rq",
    "kubernetes": "operate/deploy",
    "how to test": "how-to/testing",
    "security": "operate/security",
    "dba": "operate/for-the-dba",
    "rate limit": "understand/rate-limits",
    "progress bar": "how-to/export-with-progress-bar",
    "pgbouncer": "operate/pgbouncer",
    "lost jobs": "understand/crashed-workers",
    "upgrade": "operate/stability",
}


@rule("M3")
@pytest.mark.parametrize("text", ASKED)
def test_the_page_that_one_looks_for_is_found_first(text: str) -> None:
    assert search(list_pages(find_root()), text)[0].name == ASKED[text]


@rule("M3")
def test_the_browser_gets_pages_and_pictures_and_no_other_file() -> None:
    root = find_root()
    pages = list_pages(root)
    status, kind, body = answer(root, pages, "/operate/deploy.md")
    assert (status, kind[:9]) == (200, "text/html") and b"<h1>Deploy</h1>" in body
    assert b"/operate/capacity.md" in answer(root, pages, "/?q=autoscaling")[2]
    assert b"<b>" not in answer(root, pages, "/?q=autoscaling%3Cb%3E")[2]
    assert answer(root, pages, "/pictures/commit.svg")[1] == "image/svg+xml"
    assert answer(root, pages, "/../pyproject.toml")[0] == 404
    assert answer(root, pages, "/%2e%2e/README.md")[0] == 404
