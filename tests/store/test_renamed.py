"""A renamed job type, and other rows that changed under a worker's feet."""

from __future__ import annotations

import psycopg

from rota.model.job import Status
from tests.store.work import FAIL, PAYLOAD_MISMATCH, SUCCEED, Connection, Hand
from tests.support.rules import rule


def _declare(connection: Connection, name: str, *aliases: str) -> None:
    connection.execute("select rota.worker_declare(%s, aliases => %s)", [name, list(aliases)])


def _put(connection: Connection, job_type: str, key: str | None = None) -> bool:
    return (
        connection.execute(
            "insert into rota.job (job_type, idempotency_key) values (%s, %s)", [job_type, key]
        ).rowcount
        == 1
    )


@rule("M12", "M51")
def test_two_former_names_that_share_a_key_can_become_one(shared: Connection) -> None:
    assert _put(shared, "a", "user:1")
    assert _put(shared, "b", "user:1")
    _declare(shared, "c", "a", "b")
    assert not _put(shared, "c", "user:1")
    _declare(shared, "c", "a", "b")


@rule("M51")
def test_a_key_that_commits_while_its_type_is_being_renamed_is_still_taken_and_expires(
    connection: Connection, database: str
) -> None:
    with psycopg.connect(database) as late:
        late.execute("insert into rota.job (job_type, idempotency_key) values ('old', 'u1')")
        _declare(connection, "new", "old")
    assert not _put(connection, "new", "u1")
    hand = Hand(connection, types=["old", "new"])
    [job] = hand.claim().jobs
    hand.settle((job, SUCCEED))
    assert connection.execute("select expires_at is not null from rota.idempotency").fetchall() == [
        (True,)
    ]
    assert not _put(connection, "new", "u1")
    connection.execute("update rota.idempotency set job_type = 'old', expires_at = rota.clock()")
    assert _put(connection, "new", "u1")


@rule("M32")
def test_two_claims_of_one_job_in_one_batch_are_distinguished(shared: Connection) -> None:
    hand = Hand(shared)
    _put(shared, "t")
    [first] = hand.claim().jobs
    shared.execute(
        "update rota.job set status = 'queued', locked_by = null, locked_until = null, claims = "
        "claims + 1"
    )
    [second] = hand.claim().jobs
    written = hand.settle((first, FAIL), (second, FAIL))
    assert set(written) == {second.id}
    assert shared.execute("select claim from rota.attempt").fetchall() == [(second.claims,)]
    shared.execute("update rota.job set run_at = rota.clock()")
    [third] = hand.claim().jobs
    hand.settle((second, SUCCEED), (third, SUCCEED))
    assert shared.execute("select claims from rota.job_history").fetchall() == [(third.claims,)]


@rule("M12")
def test_a_payload_mismatch_that_no_release_takes_for_an_hour_is_dead_in_the_end(
    shared: Connection,
) -> None:
    shared.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) values "
        "('w2', 'h', 1, '1', '2', '{t}', '{}')"
    )
    hand = Hand(shared, release="1")
    _put(shared, "t")
    [job] = hand.claim().jobs
    assert hand.settle((job, PAYLOAD_MISMATCH))[job.id].status == Status.QUEUED
    shared.execute("update rota.job set run_at = rota.clock() - interval '10 minutes'")
    assert hand.claim().jobs == []
    shared.execute("update rota.job set run_at = rota.clock() - interval '2 hours'")
    shared.execute("update rota.worker set stopped_at = rota.clock() - interval '2 hours'")
    [job] = hand.claim().jobs
    assert hand.settle((job, PAYLOAD_MISMATCH))[job.id].status == Status.DEAD


@rule("M32")
def test_a_running_job_whose_type_was_renamed_by_sql_keeps_its_lease(shared: Connection) -> None:
    hand = Hand(shared)
    _put(shared, "t")
    [job] = hand.claim().jobs
    shared.execute("update rota.job set job_type = 'renamed', locked_until = rota.clock()")
    assert hand.renew(job) == {job.id}
    assert shared.execute("select locked_until > rota.clock() from rota.job").fetchone() == (True,)
