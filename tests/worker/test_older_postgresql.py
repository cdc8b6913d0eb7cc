"""The older of the two PostgreSQL that the wheel brings, in every run; `make test PG=14` puts all
tests on another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.store.migrate import migrate
from tests.support.rules import rule
from tests.support.server import OLDER, own_server


@pytest.fixture
def older(run_place: Path, tmp_path: Path) -> Iterator[str]:
    """A migrated database on PostgreSQL 16."""
    server = own_server(run_place, tmp_path / "postgresql.log", OLDER)
    migrate(server.url())
    yield server.url()
    server.stop("immediate")


@pytest.mark.nightly
@pytest.mark.system
@rule("M51", "M80", "M82", "M85")
def test_an_older_postgresql_is_migrated_and_works_off_jobs_keys_and_schedules(older: str) -> None:
    app = rota.App(older)

    # A tick that does not come while the test runs.
    @app.schedule("leap", "0 2 29 2 *")
    @app.job("report")
    def report(number: int = 0) -> None:
        if number == 13:
            raise rota.Dead("unlucky")

    app.sync()
    first, again = (report.using(key="once").enqueue(1) for _ in range(2))
    assert (again.id, again.created) == (first.id, False)
    unlucky = report.enqueue(13)
    tick = app.schedules.trigger("leap")
    done = app.drain()
    assert (done.succeeded, done.dead) == (2, 1)
    assert {job.id: job.status for job in app.find()} == {
        first.id: "succeeded",
        unlucky.id: "dead",
        tick: "succeeded",
    }
    assert [run.job for run in app.schedules.runs("leap")] == [tick]
