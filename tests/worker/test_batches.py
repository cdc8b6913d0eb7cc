"""Batches whose workers are killed."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.process import notes
from tests.worker.table import Connection, over, rows, value

MEMBERS = 1_000
OPEN = """
with opened as materialized (
  select rota.batch_open('{"ended": {"job_type": "tell", "payload": {}}}', 'run', null) as batch
),
members as (
  insert into rota.job (job_type, batch)
  select 'nap', o.batch
  from opened o
  cross join generate_series(1, %s)
  returning id
)
select rota.batch_add((select batch from opened), array_agg(id))
from members
"""


@pytest.mark.slow
@pytest.mark.waits
@rule("M30", "M72")
def test_what_follows_is_enqueued_once_although_workers_are_killed(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    connection.execute(OPEN, [MEMBERS])
    for _ in range(5):
        before = over(connection)
        first, second = (start_worker(database, slots=10, lease="1s") for _ in range(2))
        eventually(lambda: over(connection) > before, what="a member ends")  # noqa: B023
        first.kill()
        second.kill()
    start_worker(database, slots=20, lease="1s")
    told = "select count(*) from rota.job_history where job_type = 'tell'"
    eventually(lambda: value(connection, told) == 1, 120, what="it is told what came of it")
    # On a busy machine a lease of a second may end under a live worker, and a job be dead of it.
    [(total, failed)] = rows(
        connection, "select total, dead from rota.batches where outcome is not null"
    )
    assert total == MEMBERS
    assert f"ended {MEMBERS} {failed}" in {what for _, what in notes(first.notes_file)}
    assert value(connection, "select count(*) from rota.jobs where job_type = 'tell'") == 1
    assert value(connection, "select count(*) from rota.batch_delta") == 0
