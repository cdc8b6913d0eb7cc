"""Statements of two workers against each other: no deadlock, nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from rota.model.job import Action
from tests.store.work import BEGINNING, CANCEL, FAIL, SUCCEED, Connection, Hand, act, insert, waits
from tests.support.rules import rule
from tests.support.wait import eventually


@rule("M32", "M87")
@pytest.mark.parametrize("write", ["finishes", "returns", "cancels"])
def test_a_statement_locks_its_jobs_in_the_order_of_their_ids_wherever_their_rows_are(
    database: str, connection: Connection, second: Connection, write: str
) -> None:
    insert(connection, 3)
    connection.execute(
        "update rota.job set run_at = '2026-01-01Z'::timestamptz - id * interval '1 s'"
    )
    hand = Hand(second)
    jobs = [hand.claim(1).jobs[0] for _ in range(3)]
    first, middle, last = sorted(job.id for job in jobs)
    assert [id_ for (id_,) in connection.execute("select id from rota.job order by ctid")] == [
        last,
        middle,
        first,
    ]
    writes: dict[str, Callable[[], Sized]] = {
        "finishes": lambda: hand.settle(*((job, SUCCEED) for job in jobs)),
        "returns": lambda: hand.settle(*((job, FAIL) for job in jobs)),
        "cancels": lambda: hand.run(act(Action.CANCEL, *(job.id for job in jobs))),
    }
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [middle])
        writing = pool.submit(writes[write])
        eventually(waits(connection, second))
        free = connection.execute("select id from rota.job for update skip locked").fetchall()
        other.rollback()
        assert len(writing.result(30)) == 3
    assert free == [(last,)]


@rule("M51")
def test_the_end_of_a_job_never_waits_for_a_producer_s_open_transaction_on_its_key(
    database: str, connection: Connection
) -> None:
    insert(connection, idempotency_key="k")
    insert(connection, idempotency_key="c")
    hand = Hand(connection)
    succeeds, is_cancelled = hand.claim().jobs
    connection.execute("set lock_timeout = '1 s'")
    with psycopg.connect(database) as producer:
        refused = producer.execute(
            "insert into rota.job (job_type, idempotency_key) values ('t', 'k'), ('t', 'c')"
        )
        assert refused.rowcount == 0
        assert len(hand.settle((succeeds, SUCCEED), (is_cancelled, CANCEL))) == 2


@rule("M30")
def test_an_old_snapshot_held_open_elsewhere_stops_no_job(
    database: str, connection: Connection
) -> None:
    with psycopg.connect(database) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select 1")
        insert(connection, 50)
        hand = Hand(connection)
        connection.execute("set lock_timeout = '1 s'")
        assert len(hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))) == 50
        assert hand.claim(after=BEGINNING).jobs == []
        assert old.execute("select count(*) from rota.jobs").fetchone() == (0,)
