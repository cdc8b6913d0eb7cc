"""A second run of each handler that the pages show is harmless."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import run_twice
from tests.support.rules import rule

ROOT = Path(__file__).parents[2]
ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "README.md": {"send_welcome_email": {"user_id": 1}, "daily_report": {}},
    "docs/operate/alerts.md": {
        "page_somebody": {"rule": "r", "state": "fires", "severity": "warning", "message": "m"}
    },
    "docs/operate/drain-endpoint.md": {"greet": {"name": "Ada"}},
    "docs/understand/jobs-and-workers.md": {"greet": {"name": "Ada"}},
    "docs/understand/idempotency-keys.md": {
        "welcome": {"user_id": 1}, "index": {"doc": 1, "version": 1}
    },
    "docs/operate/metrics.md": {"greet": {"name": "Ada"}},
    "docs/operate/tracing.md": {"greet": {"name": "Ada"}},
    "docs/understand/payload-versions.md": {"charge": {"order": 7, "cents": 150}},
    "docs/understand/schedules.md": {
        "cleanup_nightly": {}, "daily_report": {"region": "eu"}, "sweep_carts": {}
    },
}  # fmt: skip
"""What the handlers of a page are called with."""
ELSEWHERE = {
    "docs/how-to/shards.md": "its handlers need four databases; test_shards.py runs them",
    "docs/how-to/dask.md": "its handler needs a cluster; test_dask.py runs it",
    "docs/how-to/ray.md": "its handler needs a cluster; test_ray.py runs it",
    "docs/how-to/progress.md": "it writes pages; test_jobs_and_workers.py runs it",
    "docs/understand/batches.md": "its handlers write to lists; test_batches.py runs them",
    "docs/how-to/chunks.md": "its handlers have a service; test_chunks.py runs them",
    "docs/how-to/middleware.md": "its handlers need what is around them; test_around.py runs them",
    "docs/understand/effects.md": "test_idempotent_handlers.py has a provider for it",
    "docs/understand/idempotent-handlers.md": "test_idempotent_handlers.py has a table for it",
    "docs/understand/steps.md": "test_idempotent_handlers.py runs it",
    "docs/understand/breakers.md": "test_breakers.py has an endpoint for it",
    "docs/how-to/arguments.md": "its handlers do nothing; test_arguments.py runs them",
    "docs/how-to/django.md": "its handlers have models; test_django.py runs them",
    "docs/how-to/from-celery.md": "its handlers print; test_from.py runs them",
    "docs/how-to/from-procrastinate.md": "the same",
    "docs/how-to/from-rq.md": "the same",
    "docs/how-to/cancel-reminder.md": "test_how_to.py runs its handlers",
    "docs/how-to/debounce.md": "test_how_to.py runs its handlers",
    "docs/how-to/double-click.md": "test_how_to.py runs its handlers",
    "docs/how-to/import-file.md": "test_how_to.py runs its handlers",
    "docs/how-to/nightly-report.md": "test_how_to.py runs its handlers",
    "docs/how-to/tenant-and-session.md": "test_how_to.py runs its handlers",
    "docs/how-to/kinds.md": "one of its handlers has faults; test_kinds.py runs the other one",
    "docs/understand/ordered-groups.md": "test_ordered_groups.py runs its handlers",
    "docs/understand/concurrency-limits.md": "test_ordered_groups.py declares its handler",
    "docs/understand/rate-limits.md": "its handlers do nothing; test_rate_limits.py runs them",
    "docs/understand/waiting.md": "its handler runs again after it waited; test_waiting.py runs it",
    "docs/how-to/testing.md": "its own tests call run_twice; test_testing.py runs them",
    "docs/how-to/testing-in-a-transaction.md": "the same",
    "docs/reference/agents.md": "half of its handlers are wrong; test_agents.py runs them",
    "docs/understand/transactions.md": "its handlers do nothing; test_transactions.py runs them",
    **{
        f"docs/tutorial/{chapter}.md": "its files need each other; test_tutorial.py follows it"
        for chapter in (
            "2-when-it-fails",
            "3-with-your-data",
            "5-every-night",
            "6-progress-and-cancel",
            "7-harmless-twice",
            "8-deploy",
        )
    },
}


def blocks(page: str) -> list[str]:
    """The blocks of a page that declare a handler of an App."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    if ROOT / page == ROOT / "README.md":
        return [found[0]]
    return [block for block in found if "@app.job(" in block]


def test_no_page_is_forgotten() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    showing = {str(page.relative_to(ROOT)) for page in pages if blocks(str(page))}
    assert showing == ARGUMENTS.keys() | ELSEWHERE.keys()


@rule("M50")
@pytest.mark.parametrize("page", ARGUMENTS)
def test_a_second_run_of_each_handler_of_a_page_is_harmless(
    page: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setenv("TICK_SECRET", "a-secret-of-this-test")
    app = rota.App()
    names: dict[str, Any] = {"app": app, "rota": rota, "Any": Any, "send_mail": print}
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)  # the page is ours
    types = names["app"].types
    assert types.keys() == ARGUMENTS[page].keys()
    for name, arguments in ARGUMENTS[page].items():
        run_twice(types[name].new(**arguments))
