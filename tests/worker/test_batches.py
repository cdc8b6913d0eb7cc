"""Batches whose workers are killed."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.process import WorkerProcess, notes
from tests.worker.table import Connection, over, rows, value

MEMBERS = 1_000
INNER = 5
OPEN = """
with opened as materialized (
  select rota.batch_open('{"ended": {"job_type": "tell", "payload": {}}}', 'continue', %s) as batch
),
members as (
  insert into rota.job (job_type, batch)
  select 'nap', o.batch
  from opened o
  cross join generate_series(1, %s)
  returning id
)
select rota.batch_add((select batch from opened), array_agg(id)), (select batch from opened)
from members
"""


@pytest.mark.slow
@pytest.mark.waits
@rule("M30", "M72")
def test_what_follows_is_enqueued_once_although_workers_are_killed(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    open_batch(connection, MEMBERS)
    worker = kill_workers(5, database, connection, start_worker)
    told = "select count(*) from rota.job_history where job_type = 'tell'"
    eventually(lambda: value(connection, told) == 1, 120, what="it is told what came of it")
    # On a busy machine a lease of a second may end under a live worker, and a job be dead of it.
    [(total, failed)] = rows(
        connection, "select total, dead from rota.batches where outcome is not null"
    )
    assert total == MEMBERS
    assert f"ended {MEMBERS} {failed}" in {what for _, what in notes(worker.notes_file)}
    assert value(connection, "select count(*) from rota.jobs where job_type = 'tell'") == 1
    assert value(connection, "select count(*) from rota.batch_delta") == 0


@pytest.mark.slow
@pytest.mark.waits
@rule("M30", "M72")
def test_what_follows_batches_in_a_batch_is_enqueued_once_although_workers_are_killed(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    with connection.transaction():
        outer = open_batch(connection, 1)
        for _ in range(INNER):
            open_batch(connection, MEMBERS // INNER, parent=outer)
    kill_workers(5, database, connection, start_worker)
    told = "select count(*) from rota.job_history where job_type = 'tell'"
    eventually(lambda: value(connection, told) == INNER + 1, 120, what="all are told")
    assert value(connection, "select count(*) from rota.jobs where job_type = 'tell'") == INNER + 1
    assert value(connection, "select count(*) from rota.batch_delta") == 0
    counts = "select total, succeeded + dead from rota.batches order by id"
    assert rows(connection, counts) == [
        (INNER + 1, INNER + 1),
        *[(MEMBERS // INNER, MEMBERS // INNER)] * INNER,
    ]
    followers = "select then_job from rota.batches order by parent nulls last, then_job"
    *_, last = [job for (job,) in rows(connection, followers)]
    assert last == value(connection, "select max(id) from rota.jobs where job_type = 'tell'")


def open_batch(connection: Connection, members: int, parent: int | None = None) -> int:
    """Make a batch of jobs that take a moment; return its id."""
    [(_, batch)] = rows(connection, OPEN, parent, members)
    return int(batch)


def kill_workers(
    times: int, database: str, connection: Connection, start_worker: StartWorker
) -> WorkerProcess:
    """Start two workers and kill them once a job has ended, so many times; then start one that
    lives."""
    for _ in range(times):
        before = over(connection)
        workers = [start_worker(database, concurrency=10, lease="1s") for _ in range(2)]
        eventually(lambda: over(connection) > before, what="a member ends")  # noqa: B023
        for worker in workers:
            worker.kill()
    return start_worker(database, concurrency=20, lease="1s")
