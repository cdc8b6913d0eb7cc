"""A worker whose handlers use Django's connections, and a database that restarts."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import Connect, StartWorker
from tests.worker.table import Connection, put, rows

pytestmark = [pytest.mark.nightly, pytest.mark.system]

JOBS = 20


def _statuses(connection: Connection, jobs: list[int]) -> set[str]:
    found = rows(connection, "select status from rota.jobs where id = any(%s)", jobs)
    return {status for (status,) in found}


@rule("M2")
def test_after_a_restart_of_the_database_djangos_connections_serve_only_if_they_are_checked(
    own_server: PostgresServer, connect: Connect, start_worker: StartWorker
) -> None:
    connection = connect()
    start_worker(own_server.url(), module="tests.worker.django_shop", concurrency=4)
    # Each thread has its connection: one that a job makes later would be a good one.
    for kinds in (["aread"], ["meet"] * 3):
        before = [put(connection, kind) for kind in kinds]
        eventually(lambda: _statuses(connection, before) == {"succeeded"})  # noqa: B023
    own_server.restart()

    connection = connect()
    after = [put(connection, kind) for kind in ("read", "aread") * (JOBS // 2)]
    eventually(lambda: _statuses(connection, after) == {"succeeded"}, 60)
    assert rows(connection, "select count(*) from rota.attempt") == [(0,)]
