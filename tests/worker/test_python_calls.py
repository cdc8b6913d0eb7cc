"""How many functions of Python and of C a job calls on its way. Whoever raises a budget says why in
the commit."""

from __future__ import annotations

import cProfile
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import rota
from tests.support.rules import rule


@dataclass(frozen=True)
class Row:
    """The payload of a job that shares its call."""

    n: int


@pytest.fixture
def app(database: str, caplog: pytest.LogCaptureFixture) -> rota.App:
    """An application with a plain type, and one of which a call takes a hundred jobs; it logs what
    is logged by default."""
    caplog.set_level(logging.WARNING, "rota")
    app = rota.App(database)

    @app.job("plain")
    async def plain(n: int) -> None: ...

    @app.job("many", chunk=100)
    async def many(rows: list[Row]) -> None: ...

    app.sync()
    return app


def check(do: Callable[[], object], jobs: int, *, of_each: int, in_all: int) -> None:
    """Hold the budgets of one job.

    Args:
        do: does something with so many jobs, in this thread.
        of_each: calls of functions that every job calls, in whole numbers: how the jobs fall into
            batches, and how long it takes, does not change them.
        in_all: its share of all calls.
    """
    profile = cProfile.Profile()
    profile.runcall(do)
    calls = Counter[str]()
    for entry in profile.getstats():
        code = entry.code
        name = code if isinstance(code, str) else f"{code.co_filename}:{code.co_qualname}"
        calls[name] += entry.callcount
    each = {name: count // jobs for name, count in calls.items() if count >= jobs}
    listed = "\n".join(f"{count} {name}" for name, count in sorted(each.items()))
    called, shared = sum(each.values()), calls.total() / jobs
    assert called <= of_each, f"each job calls {called}:\n{listed}"
    assert shared <= in_all, f"{shared:.1f} for each job, of which each calls {called}:\n{listed}"


@pytest.mark.parametrize(
    ("job_type", "of_each", "in_all"),
    [pytest.param("plain", 24, 50, id="plain"), pytest.param("many", 5, 30, id="a call of 100")],
)
@rule("M2")
def test_a_drain(app: rota.App, job_type: str, of_each: int, in_all: int) -> None:
    jobs = 5000
    app.types[job_type].enqueue(n=0)
    app.drain()  # the first one imports modules and reads files
    app.types[job_type].enqueue_many([{"n": n} for n in range(jobs)])
    drains: list[rota.records.Summary] = []
    check(lambda: drains.append(app.drain(concurrency=100)), jobs, of_each=of_each, in_all=in_all)
    assert drains[0].succeeded == jobs


@rule("M2")
def test_an_enqueue(app: rota.App) -> None:
    plain = app.types["plain"]
    plain.enqueue(0)
    check(lambda: [plain.enqueue(n) for n in range(300)], 300, of_each=245, in_all=260)


@rule("M2")
def test_a_bulk(app: rota.App) -> None:
    plain = app.types["plain"]
    jobs = 5000
    check(lambda: plain.enqueue_many([{"n": n} for n in range(jobs)]), jobs, of_each=15, in_all=16)
