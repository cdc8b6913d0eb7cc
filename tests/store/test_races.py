"""Statements of two workers against each other: no deadlock, nothing lost, nothing twice."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.model.job import Job
from tests.store.work import (
    BEGINNING,
    CANCEL,
    FAIL,
    GIVE_UP,
    HAND_BACK,
    SNOOZE,
    SUCCEED,
    Hand,
    insert,
    waits,
)
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]
JOBS, ROUNDS = 200, 4


@rule("M32")
def test_mixed_ends_against_renewals_of_the_same_jobs_never_deadlock(
    database: str, connection: Connection
) -> None:
    insert(connection, JOBS)
    connection.execute("update rota.job set idempotency_key = id::text")
    connection.execute(
        "insert into rota.idempotency (job_type, key, job) select job_type, idempotency_key, id "
        "from rota.job"
    )
    held: list[Job] = []
    renewed = {1: 0, -1: 0}
    over, chance = Event(), random.Random(3)

    def renew(order: int) -> None:
        """Renew as lease keepers do, in one order or the other, until asked to stop."""
        with psycopg.connect(database, autocommit=True) as own:
            hand = Hand(own)
            while not over.is_set():
                renewed[order] += len(hand.renew(*list(held)[::order]))

    with ThreadPoolExecutor(2) as pool:
        renewals = [pool.submit(renew, order) for order in renewed]

        def have_both_renewed(since: dict[int, int]) -> bool:
            for renewal in renewals:
                if renewal.done():
                    renewal.result()  # it has failed, and says why
            return all(renewed[order] > since[order] for order in renewed)

        try:
            hand = Hand(connection)
            for _ in range(ROUNDS):
                so_far = dict(renewed)
                held[:] = hand.claim(JOBS).jobs
                eventually(partial(have_both_renewed, so_far), what="both are at it")
                shuffled = chance.sample(held, JOBS)
                others = [
                    (job, chance.choice([FAIL, GIVE_UP, SNOOZE, HAND_BACK]))
                    for job in shuffled[: JOBS // 2]
                ]
                over_now = [
                    (job, chance.choice([SUCCEED, CANCEL])) for job in shuffled[JOBS // 2 :]
                ]
                assert len(hand.settle(*others)) + len(hand.settle(*over_now)) == JOBS
                _hand_back(connection)
        finally:
            over.set()
        for renewal in renewals:
            renewal.result(30)


@rule("M32")
@pytest.mark.parametrize("write", ["finishes", "returns"])
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
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [middle])
        transition = SUCCEED if write == "finishes" else FAIL
        writing = pool.submit(hand.settle, *((job, transition) for job in jobs))
        eventually(waits(connection, second))
        free = connection.execute("select id from rota.job for update skip locked").fetchall()
        other.rollback()
        assert set(writing.result(30)) == {first, middle, last}
    assert free == [(last,)]


def _hand_back(connection: Connection) -> None:
    """All of them due again, those in history under a new id."""
    # In id order too: a renewal that came too late has still locked the rows that it looked at.
    connection.execute(
        "with mine as materialized (select id from rota.job order by id for update) "
        "update rota.job j set status = 'queued', run_at = now() from mine where j.id = mine.id"
    )
    connection.execute("delete from rota.idempotency where expires_at is not null")
    connection.execute(
        "with gone as (delete from rota.job_history returning *) insert into rota.job (job_type, "
        "queue, priority, idempotency_key) "
        "select job_type, queue, priority, idempotency_key from gone"
    )


@rule("M32", "M33")
def test_finishes_against_reaps_of_the_same_jobs_settle_each_job_once(
    database: str, connection: Connection
) -> None:
    together = Barrier(2)
    totals = {"finished": 0, "reaped": 0}
    with psycopg.connect(database, autocommit=True) as other:
        worker, reaper = Hand(connection, "worker"), Hand(other, "reaper")
        for _ in range(12):
            connection.execute("delete from rota.job")
            insert(connection, 200)
            jobs = worker.claim(200).jobs
            connection.execute("update rota.job set locked_until = now() - interval '1 s'")

            def finish(jobs: list[Job] = jobs) -> set[int]:
                together.wait(30)
                return set(worker.settle(*((job, SUCCEED) for job in reversed(jobs))))

            def reap() -> set[int]:
                together.wait(30)
                return {lost.job for lost in reaper.reap(200)}

            with ThreadPoolExecutor(2) as pool:
                finishing, reaping = pool.submit(finish), pool.submit(reap)
                finished, reaped = finishing.result(30), reaping.result(30)
            assert finished.isdisjoint(reaped)
            # What the finish had locked was skipped, never waited for.
            reaped |= {lost.job for lost in reaper.reap(200)}
            assert finished | reaped == {job.id for job in jobs}
            totals["finished"] += len(finished)
            totals["reaped"] += len(reaped)
    assert connection.execute("select count(*) from rota.job_history").fetchone() == (
        totals["finished"],
    )
    assert connection.execute("select count(*) from rota.attempt").fetchone() == (totals["reaped"],)


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
