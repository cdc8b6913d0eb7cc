"""No job gets the id of another, also where a database came without its sequences."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import rota
from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level
from rota.store.db import Database
from tests.store.work import FAIL, GIVE_UP, SUCCEED, Connection, Hand, insert, waits
from tests.support.rules import rule
from tests.support.wait import eventually


def restart(connection: Connection) -> None:
    """Let the sequences begin again, as after a move by logical replication."""
    connection.execute(
        "select setval('rota.job_id_seq', 1, false), setval('rota.action_id_seq', 1, false)"
    )


def move(connection: Connection) -> dict[str, int]:
    return dict(connection.execute("select * from rota.ids_ensure()").fetchall())


@rule("M2", "M87")
def test_resume_copy_moves_the_sequences_above_every_id_that_was_given(
    connection: Connection, app: rota.App, database: str
) -> None:
    ids = insert(connection, 5)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    hand.settle((jobs[4], SUCCEED), (jobs[3], GIVE_UP))
    app.jobs.discard(ids[0], why="no", by="ann")
    restart(connection)
    assert app.queues.resume_copy() is False  # it is no copy, and needs its sequences all the same
    assert insert(connection) == [ids[4] + 1]
    app.jobs.archive(ids[0], why="no", by="ann")
    assert connection.execute("select array_agg(id order by id) from rota.action").fetchone() == (
        [1, 2],
    )


@rule("M2")
def test_the_highest_id_is_that_of_a_live_job_of_history_or_of_an_attempt(
    connection: Connection,
) -> None:
    hand = Hand(connection)
    for left in ("live", "history", "attempt"):
        ids = insert(connection, 3)
        if left != "live":
            [job] = [job for job in hand.claim().jobs if job.id == ids[2]]
            hand.settle((job, SUCCEED if left == "history" else FAIL))
        if left == "attempt":  # as of a type that keeps no success of the retry
            connection.execute("delete from rota.job where id = %s", [ids[2]])
        restart(connection)
        assert move(connection) == {"rota.job_id_seq": ids[2]}, left
        assert insert(connection) == [ids[2] + 1]


NAMED = {
    "a held key": "insert into rota.idempotency (job_type, key, job) values ('t', 'k', 3)",
    "a key of a job that is over": "insert into rota.idempotency (job_type, key, job, expires_at) "
    "values ('t', 'k', 3, now() + interval '1 day')",
    "a run of a schedule": "insert into rota.schedule_run (schedule, job) values ('s', 3)",
    "a schedule": "insert into rota.schedule (name, job_type, last_job) values ('s', 't', 3)",
    "an action": "insert into rota.action (verb, job, by) values ('cancel', 3, 'ann')",
}
"""All that may be left of a job."""


@rule("M2")
def test_an_id_is_not_given_again_while_anything_names_it(connection: Connection) -> None:
    for left, put in NAMED.items():
        with connection.transaction(force_rollback=True):
            connection.execute(put.encode())
            connection.execute("select setval('rota.job_id_seq', 1, false)")
            assert move(connection) == {"rota.job_id_seq": 3}, left


@rule("M2")
def test_doctor_reads_the_latest_keys_and_a_repair_all_of_them(connection: Connection) -> None:
    connection.execute(
        "insert into rota.idempotency (job_type, key, job, expires_at) "
        "select 't', id::text, 100 - id, now() + id * interval '1 day' "
        "from generate_series(1, 9) id"
    )
    connection.execute(
        "insert into rota.schedule_run (schedule, job, enqueued_at) "
        "select 's', 80 - id, now() + id * interval '1 day' from generate_series(1, 9) id"
    )
    highest = "select highest_id from rota.ids_behind(%s)"
    assert connection.execute(highest, [2]).fetchall() == [(92,)]
    assert move(connection) == {"rota.job_id_seq": 99}
    connection.execute("delete from rota.idempotency")
    restart(connection)
    assert connection.execute(highest, [2]).fetchall() == [(72,)]
    assert move(connection) == {"rota.job_id_seq": 79}


@rule("M2", "M87")
def test_a_copy_without_its_sequences_can_be_paused(connection: Connection, app: rota.App) -> None:
    ids = insert(connection, 3)
    app.queues.pause("mail", force=True)
    app.queues.resume("mail")
    restart(connection)
    app.queues.pause("mail")
    assert connection.execute("select array_agg(id order by id) from rota.action").fetchone() == (
        [1, 2, 3],
    )
    assert insert(connection) == [ids[-1] + 1]


@rule("M2")
def test_a_sequence_is_never_moved_backwards(connection: Connection) -> None:
    assert move(connection) == {}
    ids = insert(connection, 3)
    reserved = [
        id_ for (id_,) in connection.execute("select unnest(rota.ids_reserve(10))").fetchall()
    ]
    assert move(connection) == {}
    connection.execute("delete from rota.job where id = any (%s)", [ids])
    assert move(connection) == {}
    assert insert(connection) == [reserved[-1] + 1]


@rule("M2")
def test_ids_that_a_bulk_reserves_while_the_sequence_is_moved_stay_its_own(
    connection: Connection, second: Connection, database: str
) -> None:
    ids = insert(connection, 50)
    restart(connection)
    with psycopg.connect(database) as bulk, ThreadPoolExecutor(1) as pool:
        bulk.execute("select rota.ids_reserve(10)")  # still below the highest
        moving = pool.submit(move, second)
        eventually(waits(connection, second), what="it waits for those that take ids")
        bulk.execute("select rota.ids_reserve(100)")
        bulk.commit()
        assert moving.result(30) == {}  # the bulk has moved it further by then
    assert insert(connection)[0] > ids[-1] + 60 - 1


@rule("M2", "M3")
def test_doctor_names_a_sequence_that_is_behind_also_for_a_reader(
    database: str, connection: Connection, role: str
) -> None:
    insert(connection, 3)
    connection.execute(f"grant select on all tables in schema rota to {role}".encode())

    def look() -> tuple[Level, str]:
        found = examine(Database(make_conninfo(database, user=role)), only=["ids"])["ids"]
        return found.level, f"{found.what} {found.what_to_do}"

    assert look()[0] == Level.OK
    restart(connection)
    level, said = look()
    assert level == Level.BAD
    assert "rota.job_id_seq is at 0, and an id is 3" in said and "rota queues resume --copy" in said
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(connection)
    connection.execute(said[said.index("SELECT") :].encode())
    assert look()[0] == Level.OK
