"""Waiting jobs past their expiry: which end, with which reason, and that nothing waits for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store import ops
from tests.store.planned import move_clock
from tests.store.work import BEGINNING, GIVE_UP, Connection, Hand, insert
from tests.support.rules import rule

LATE = "rota.clock() - interval '1 s'"


def _expire(
    connection: Connection, limit: int = 500, after: datetime = BEGINNING, after_id: int = 0
) -> list[ops.Overdue]:
    _, expired, refusals = Hand(connection).run(ops.expire("looks", after, after_id, limit))
    assert not refusals
    return expired


def _late(connection: Connection, count: int = 1, *, by: str = "1 s", **columns: Any) -> list[int]:
    """Jobs that were due an hour ago and have expired."""
    ids = insert(connection, count, **columns)
    connection.execute(
        "update rota.job set expires_at = rota.clock() - %s::interval, run_at = rota.clock() - "
        "interval '1 h' where id = any (%s)",
        [by, ids],
    )
    return ids


def _worker(
    connection: Connection,
    *,
    types: tuple[str, ...] = ("t",),
    queues: tuple[str, ...] = ("default",),
    running: int = 0,
) -> None:
    """A worker that has been up for a day."""
    Hand(connection, f"w{types}{queues}", types=types).send_heartbeat(
        queues=json.dumps(dict.fromkeys(queues)), running=running
    )
    connection.execute("update rota.worker set started_at = rota.clock() - interval '1 day'")


def _row(connection: Connection, columns: str) -> TupleRow | None:
    return connection.execute(f"select {columns} from rota.job".encode()).fetchone()


@rule("M36", "M43")
def test_a_job_that_no_worker_asked_for_is_dead_past_its_expiry_with_its_reason_and_uncharged(
    shared: Connection,
) -> None:
    insert(shared, expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    insert(shared)
    [late] = _late(shared)
    [gone] = _expire(shared)
    assert (gone.job, gone.job_type, gone.claim, gone.attempt) == (late, "t", 0, 1)
    assert shared.execute(
        "select id from rota.job where status = 'queued' order by id"
    ).fetchall() == [(late - 2,), (late - 1,)]
    columns = (
        "status, attempts, claims, locked_by, started_at, last_error, error_type, verdict, "
        "verdict_rule, failed_at = updated_at"
    )
    [row] = shared.execute(f"select {columns} from rota.job where id = {late}".encode()).fetchall()
    assert row == ("dead", 0, 0, None, None, gone.message, "Expired", "fatal", "expired", True)
    assert gone.message.startswith("not started before expires_at (20")
    [kept] = shared.execute(
        "select job, claim, attempt, job_type, worker, release, started_at, outcome, error_type, "
        "message, verdict, verdict_rule, next_run_at"
        " from rota.attempt"
    ).fetchall()
    assert kept == (
        late,
        0,
        1,
        "t",
        "looks",
        None,
        None,
        "dead",
        "Expired",
        gone.message,
        "fatal",
        "expired",
        None,
    )
    assert _expire(shared) == []


@rule("M36", "M51")
def test_an_expired_job_keeps_its_key_as_any_dead_job_does(shared: Connection) -> None:
    [late] = _late(shared, idempotency_key="k")
    _expire(shared)
    assert shared.execute("select job, expires_at from rota.idempotency").fetchall() == [
        (late, None)
    ]
    assert insert(shared, idempotency_key="k") == []


@rule("M36", "M44", "M51")
@pytest.mark.parametrize("status", ["queued", "failed", "waiting"])
def test_an_expired_job_of_a_type_that_drops_is_cancelled_with_its_reason_and_frees_its_key(
    shared: Connection, status: str
) -> None:
    shared.execute(
        "insert into rota.job_type (name, aliases, on_expired) values ('new', '{t}', 'drop')"
    )
    late = [
        *_late(shared, idempotency_key="k", status=status, attempts=2),
        *_late(shared, job_type="new", idempotency_key="l", status=status),
    ]
    [dead] = _late(shared, job_type="u", status=status)
    gone = {expired.job: expired for expired in _expire(shared)}
    assert {job: expired.status for job, expired in gone.items()} == {
        late[0]: "cancelled", late[1]: "cancelled", dead: "dead",
    }  # fmt: skip
    assert (gone[late[0]].attempt, gone[late[1]].attempt) == (3, 1)
    assert gone[late[0]].message.startswith("expired: not started ")
    assert shared.execute(
        "select id, status, attempts, cancel_reason, last_error, error_type, verdict, started_at "
        "from rota.job_history order by id"
    ).fetchall() == [
        (job, "cancelled", attempts, gone[job].message, gone[job].message, None, None, None)
        for job, attempts in zip(late, (2, 0), strict=True)
    ]
    assert shared.execute("select id from rota.job").fetchall() == [(dead,)]
    assert shared.execute("select job from rota.attempt").fetchall() == [(dead,)], (
        "an attempt would count in the alerts of errors"
    )
    assert shared.execute("select from rota.idempotency").fetchall() == []


@rule("M32", "M36")
def test_a_running_job_does_not_expire_and_a_dead_one_is_left_alone(shared: Connection) -> None:
    hand = Hand(shared)
    _late(shared, 2)
    running, dead = hand.claim().jobs
    hand.settle((dead, GIVE_UP))
    # The function alone: after an error the operation would go row by row, and hide that a
    # CHECK did its work.
    assert (
        shared.execute("select id from rota.job_expire('looks', '-infinity', 0, 500)").fetchall()
        == []
    )
    statuses = shared.execute(
        "select status, error_type, claims from rota.job order by id"
    ).fetchall()
    assert statuses == [("running", None, 1), ("dead", "OSError", 2)]
    assert hand.renew(running) == {running.id}


@rule("M36")
@pytest.mark.parametrize("status", ["queued", "failed", "waiting"])
def test_a_job_expires_wherever_it_waits_also_when_its_run_at_lies_later(
    shared: Connection, status: str
) -> None:
    insert(
        shared,
        status=status,
        run_at=datetime(2100, 1, 1, tzinfo=UTC),
        expires_at=datetime(2101, 1, 1, tzinfo=UTC),
    )
    assert _expire(shared) == []
    shared.execute(f"update rota.job set expires_at = {LATE}".encode())
    assert len(_expire(shared)) == 1
    assert _row(shared, "status, attempts") == ("dead", 0)


@rule("M22", "M36")
def test_a_job_expires_by_the_database_s_clock_alone(shared: Connection) -> None:
    move_clock(shared, "3 hours")
    there = datetime.now(UTC) + timedelta(hours=3)
    insert(shared, expires_at=there + timedelta(minutes=1))
    assert _expire(shared) == []
    shared.execute(f"update rota.job set expires_at = {LATE}".encode())
    assert len(_expire(shared)) == 1
    assert _row(shared, "failed_at - expires_at between '1 s' and '1 min'") == (True,)


# What held it up


@rule("M36", "M43")
@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([], "no worker was alive"),
        ([{"queues": ("other",)}], "no live worker served its queue 'default'"),
        ([{"types": ("other",)}, {"queues": ("other",)}],
            "no live worker that knew its type 't' served its queue 'default'"),
        ([{"running": 7}, {"queues": ("default", "x"), "running": 4},
            {"types": ("u",), "running": 50}],
         "the live workers that could run it (2) were busy, with 11 running jobs"),
        ([{}], "none of the live workers that could run it (1) claimed it in time"),
    ],
)  # fmt: skip
def test_it_says_what_the_workers_were_doing(
    shared: Connection, workers: list[dict[str, Any]], said: str
) -> None:
    for facts in workers:
        _worker(shared, **facts)
    _late(shared)
    [gone] = _expire(shared)
    assert gone.message.endswith(f"): {said}")


# In batches, beside others


@rule("M36", "M88")
def test_a_batch_has_a_limit_and_the_next_goes_on_behind_it(shared: Connection) -> None:
    ids = _late(shared, 3) + _late(shared, 2, by="1 min")
    shared.execute(
        "update rota.job set expires_at = (select min(expires_at) from rota.job where id = any "
        "(%s)) where id = any (%s)",
        [ids[:3]] * 2,
    )
    order = [ids[3], ids[4], *ids[:3]]
    with shared.transaction(force_rollback=True):
        behind = shared.execute(
            "select expires_at from rota.job where id = %s", [ids[0]]
        ).fetchall()
        assert [gone.job for gone in _expire(shared, 500, behind[0][0], ids[1])] == [ids[2]]
    first = sorted(_expire(shared, 2), key=lambda gone: gone.expires_at)
    assert {gone.job for gone in first} == set(order[:2])
    [second] = _expire(shared, 1, *max((gone.expires_at, gone.job) for gone in first))
    assert second.job == order[2]
    rest = _expire(shared, 500, second.expires_at, second.job)
    assert {gone.job for gone in rest} == set(order[3:])


@rule("M14", "M36")
def test_what_lies_before_the_lower_bound_is_not_looked_at(shared: Connection) -> None:
    _late(shared, by="5 min")
    assert _expire(shared, after=datetime.now(UTC) - timedelta(minutes=1)) == []
    assert len(_expire(shared, after=datetime.now(UTC) - timedelta(minutes=6))) == 1


@rule("M30", "M36")
def test_two_that_expire_at_once_do_not_wait_for_each_other_nor_for_a_claim(
    connection: Connection, second: Connection, database: str
) -> None:
    _late(connection, 9)
    for each in (connection, second):
        each.execute("set lock_timeout = '1 s'")
    with connection.transaction(), psycopg.connect(database) as third:
        claimed = {job.id for job in Hand(third).claim(3).jobs}
        mine = {gone.job for gone in _expire(connection, 3)}
        others = {gone.job for gone in _expire(second)}
        assert [len(claimed), len(mine), len(others)] == [3, 3, 3]
        assert not claimed & mine and not claimed & others and not mine & others
        third.rollback()
    assert len(_expire(connection)) == 3


@rule("M36")
def test_a_pass_that_finds_no_partition_of_the_day_makes_it(connection: Connection) -> None:
    move_clock(connection, "40 days")
    _late(connection)
    assert len(_expire(connection)) == 1
