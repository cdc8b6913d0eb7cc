"""The older of the two PostgreSQL that the wheel brings, in every run; `make test PG=14` puts all
tests on another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store.migrate import migrate
from tests.support.rules import rule
from tests.support.server import OLDER, own_server

pytestmark = pytest.mark.waits

BLOCKS_MOST = 70
"""To find who holds one key. An index of 20,000 that is read from end to end takes twice as much;
18 skips through it, older ones cannot."""


@pytest.fixture
def older(run_place: Path, tmp_path: Path) -> Iterator[str]:
    """A migrated database on PostgreSQL 16."""
    server = own_server(run_place, tmp_path / "postgresql.log", OLDER)
    migrate(server.url())
    yield server.url()
    server.stop("immediate")


@pytest.mark.system
@rule("M14", "M51", "M80", "M82", "M85")
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
    with psycopg.connect(older, autocommit=True) as connection:
        connection.execute(
            "insert into rota.idempotency (job_type, key, job) select 'report', 'k' || n, n "
            "from generate_series(1, 20000) n"
        )
        # Twice, because the first one reads the catalog, too.
        assert [
            _blocks(connection, "select * from rota.key_holders(array['report'], array['k500'])")
            for _ in range(2)
        ][1] < BLOCKS_MOST


def _blocks(connection: psycopg.Connection[TupleRow], statement: str) -> int:
    row = connection.execute(
        f"explain (analyze, buffers, format json) {statement}".encode()
    ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
