"""How a job ends: in history, by the worker that still holds it, whatever its batch holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.rows import TupleRow

import rota
from rota.model.job import Job, Status
from rota.model.settle import Transition
from tests.store.planned import set_clock
from tests.store.work import (
    CANCEL,
    FAIL,
    GIVE_UP,
    HAND_BACK,
    SNOOZE,
    SUCCEED,
    Connection,
    Hand,
    drop_days,
    expire,
    insert,
)
from tests.support.rules import rule

ALL = [SUCCEED, CANCEL, FAIL, GIVE_UP, SNOOZE, HAND_BACK]


def _result(text: str) -> Transition:
    return Transition("succeed", Status.SUCCEEDED, result_json=text)


NOON = datetime(2100, 1, 1, 12, tzinfo=UTC)
EVERY_COLUMN: dict[str, Any] = {
    "origin_id": 100,
    "queue": "q",
    "job_type": "t",
    "payload": '{"a": 1}',
    "payload_version": 2,
    "status": "failed",
    "priority": 3,
    "run_at": NOON,
    "expires_at": NOON + timedelta(minutes=1),
    "attempts": 4,
    "max_attempts": 5,
    "timeout": timedelta(seconds=11),
    "claims": 6,
    "losses": 7,
    "progress": '{"done": 8, "total": null, "note": null, "at": "2026-01-01T00:00:00Z"}',
    "mismatched_releases": ["1.9"],
    "last_error": "no route to host",
    "error_type": "OSError",
    "response_code": 503,
    "verdict": "transient",
    "verdict_rule": "default",
    "idempotency_key": "k",
    "meta": '{"b": 9}',
    "schedule": "nightly",
    "scheduled_for": NOON + timedelta(minutes=2),
    "created_at": NOON + timedelta(minutes=3),
    "updated_at": NOON + timedelta(minutes=4),
    "started_at": NOON + timedelta(minutes=5),
    "failed_at": NOON + timedelta(minutes=6),
    "group_key": "invoice 42",
    "group_capacity": 11,
    "batch": 12,
}
"""A value for each column that a job of any status may have, besides its id; no two are alike."""
ASKED: dict[str, Any] = {
    "cancel_requested_at": NOON + timedelta(minutes=7),
    "cancel_reason": "a person asked",
}
HELD = {
    "status": "running",
    "locked_by": "host:1",
    "locked_until": NOON + timedelta(minutes=8),
    "start_recorded": True,
}
WAITS: dict[str, Any] = {
    "in_lane": None,
    "capped": None,
    "waits_for": "queue q",
    "waits_since": NOON + timedelta(minutes=9),
}
"""What counts only while a job is live: history leaves it out."""
ERROR = {"last_error", "error_type", "response_code", "verdict", "verdict_rule"}


def _settles(transition: Transition) -> Callable[[rota.App, Connection, Job], object]:
    return lambda _, connection, job: Hand(connection).settle((job, transition))


@rule("M13", "M82")
@pytest.mark.parametrize(
    ("columns", "end", "status", "changed"),
    [
        (
            ASKED | HELD,
            _settles(SUCCEED),
            "succeeded",
            {"status", "locked_until", "start_recorded", "started_at", "updated_at"},
        ),
        (
            ASKED | HELD,
            _settles(CANCEL),
            "cancelled",
            {"status", "locked_until", "start_recorded", "started_at", "updated_at"} | ERROR,
        ),
        (
            {},
            lambda app, _, job: app.cancel(job.id, why="not needed"),
            "cancelled",
            {"status", "cancel_requested_at", "cancel_reason", "updated_at"} | ERROR,
        ),
        (
            ASKED | {"status": "dead", "locked_by": "host:1"},
            lambda app, _, job: app.jobs.archive(job.id, why="seen"),
            "dead",
            set(),
        ),
    ],
    ids=["succeeded", "cancelled by its handler", "cancelled by a person", "dead and ignored"],
)
def test_history_loses_no_column_of_a_job_however_it_ends(
    app: rota.App,
    shared: Connection,
    columns: dict[str, Any],
    end: Callable[[rota.App, Connection, Job], object],
    status: str,
    changed: set[str],
) -> None:
    def row(table: str) -> dict[str, Any]:
        [(found,)] = shared.execute(f"select to_jsonb(j) from rota.{table} j".encode())
        return dict(found)

    given = EVERY_COLUMN | columns | WAITS
    with shared.transaction():
        # No trigger asks how such a row came about.
        shared.execute("set local session_replication_role = replica")
        [job] = insert(shared, **given)
    before = row("job")
    known = EVERY_COLUMN | ASKED | HELD | WAITS
    assert before.keys() == {"id"} | known.keys(), "a new one?"
    values = [str(before[name]) for name, value in given.items() if value is not None]
    assert len(set(values)) == len(values)
    end(app, shared, app.get(job))
    after = row("job_history")
    assert after.keys() - before.keys() == {"finished_at", "release", "resolution", "result"}
    assert after["status"] == status
    assert {name for name in before if after[name] != before[name]} == changed | {
        name for name, value in WAITS.items() if value is not None
    }


@rule("M13")
def test_one_batch_ends_jobs_in_every_way(shared: Connection) -> None:
    insert(shared, 12)
    hand = Hand(shared)
    jobs = hand.claim().jobs
    decided = list(zip(jobs, ALL * 2, strict=True))
    written = hand.settle(*decided)
    statuses: dict[int, str] = dict(shared.execute("select id, status from rota.jobs").fetchall())
    assert statuses == {job.id: transition.status.value for job, transition in decided}
    assert {id_: job.status for id_, job in written.items()} == statuses
    attempts = shared.execute(
        "select job, outcome, message, next_run_at is null from rota.attempt order by job"
    ).fetchall()
    failed = {"failed": False, "dead": True}
    assert attempts == [
        (id_, status, "no route to host", failed[status])
        for id_, status in sorted(statuses.items())
        if status in failed
    ]


@rule("M32")
@pytest.mark.parametrize("transition", ALL, ids=[transition.verb for transition in ALL])
@pytest.mark.parametrize("attempts_max", [10, 1], ids=["tried again", "dead"])
def test_a_worker_that_was_reaped_can_write_nothing_more(
    shared: Connection, transition: Transition, attempts_max: int
) -> None:
    insert(shared, max_attempts=attempts_max, idempotency_key="k", losses=1)
    late = Hand(shared, "late")
    job = late.claim().jobs[0]
    late.start(job)
    expire(shared)
    assert [lost.status for lost in Hand(shared, "other").reap()] == [
        "dead" if attempts_max == 1 else "failed"
    ]

    def everything() -> list[TupleRow]:
        rows = "select j::text from rota.job j union all select h::text from rota.job_history h"
        return shared.execute(
            f"{rows} union all select a::text from rota.attempt a union all select i::text from "
            "rota.idempotency i"
        ).fetchall()

    before = everything()
    assert late.renew(job) == set()
    assert late.settle((job, transition)) == {}
    assert everything() == before


@rule("M32")
def test_a_finish_ends_what_is_still_held_and_leaves_the_rest(shared: Connection) -> None:
    insert(shared, 4, losses=1)
    first, other = Hand(shared, "first"), Hand(shared, "other")
    jobs = first.claim().jobs
    first.start(*jobs)
    shared.execute(
        "update rota.job set locked_until = now() - interval '1 s' where id = any (%s)",
        [[jobs[0].id, jobs[1].id]],
    )
    other.reap()
    shared.execute("update rota.job set run_at = now() where id = %s", [jobs[0].id])
    [taken] = other.claim().jobs
    assert set(first.settle(*((job, SUCCEED) for job in jobs))) == {jobs[2].id, jobs[3].id}
    assert shared.execute("select id, status from rota.job order by id").fetchall() == [
        (jobs[0].id, "running"),
        (jobs[1].id, "failed"),
    ]
    assert set(other.settle((taken, SUCCEED))) == {taken.id}


@pytest.mark.parametrize(
    "bad", ["{not json", '{"a": "\\u0000"}', '{"a": "\\ud800"}', '"\0"', "\ud800", ""]
)
def test_a_result_that_cannot_be_stored_is_left_out_and_harms_no_other(
    connection: Connection, bad: str
) -> None:
    insert(connection, 5)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    results = [_result("1"), _result(bad), CANCEL, _result('{"a": [2]}'), SUCCEED]
    assert len(hand.settle(*zip(jobs, results, strict=True))) == 5
    rows = connection.execute("select status, result from rota.job_history order by id").fetchall()
    assert rows == [
        ("succeeded", 1),
        ("succeeded", None),
        ("cancelled", None),
        ("succeeded", {"a": [2]}),
        ("succeeded", None),
    ]


@pytest.mark.parametrize("transition", ALL, ids=[transition.verb for transition in ALL])
def test_an_end_that_finds_no_partition_of_the_day_makes_it(
    connection: Connection, transition: Transition
) -> None:
    insert(connection, 2)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    drop_days(connection, "job_history", "attempt")
    assert len(hand.settle(*((job, transition) for job in jobs))) == 2
    assert connection.execute(
        "select count(*) from rota.jobs where status = %s", [transition.status.value]
    ).fetchone() == (2,)


@rule("M13")
@pytest.mark.parametrize(
    ("zone", "at"),
    [("Pacific/Kiritimati", "2026-01-14 12:00"), ("America/Los_Angeles", "2026-01-14 03:00")],
)
def test_a_partition_is_a_day_of_utc_whatever_the_zone_of_the_session_that_makes_it(
    shared: Connection, zone: str, at: str
) -> None:
    partitions = (
        "select inhrelid::regclass::text, pg_get_expr(c.relpartbound, c.oid) from pg_inherits join "
        "pg_class c on c.oid = inhrelid "
        "where inhparent in ('rota.job_history'::regclass, 'rota.attempt'::regclass) order by 1"
    )
    set_clock(shared, at)  # when it is another day there
    shared.execute("set timezone = 'UTC'")
    made = []
    for session in ("UTC", zone):
        for name, _ in shared.execute(partitions).fetchall():
            shared.execute(f"drop table {name}".encode())
        shared.execute(f"set timezone = '{session}'".encode())
        shared.execute("select rota.partitions_ensure(7)")
        shared.execute("set timezone = 'UTC'")
        made.append(shared.execute(partitions).fetchall())
    assert len(made[0]) == 16 and made[1] == made[0]


@rule("M33")
def test_a_reap_that_finds_no_partition_of_the_day_makes_it(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection)
    hand.claim()
    expire(connection)
    drop_days(connection, "attempt")
    assert len(hand.reap()) == 1
    assert connection.execute("select count(*) from rota.attempt").fetchone() == (1,)


@rule("M43")
def test_what_a_handler_says_cannot_hold_up_the_others_of_its_batch(app: rota.App) -> None:
    ends = [
        rota.Dead("a\0b"),
        rota.Retry("\ud800"),
        rota.Snooze("1h", "a\0b"),
        rota.Cancel("a\0b"),
        ValueError("a\0b\ud800"),
        rota.Dead("x" * 1_000_000),
    ]

    @app.job("speaks", retry=rota.Fixed("1h"))  # none comes again in a drain that takes long
    def speaks(which: int) -> None:
        raise ends[which]

    @app.job("quiet")
    def quiet() -> None: ...

    done = app.enqueue_many([*(speaks.new(which) for which in range(len(ends))), quiet.new()])
    report = app.drain()
    assert report.claimed == len(ends) + 1
    jobs = [app.get(job.id) for job in done]
    assert [job.status.value for job in jobs] == [
        "dead",
        "failed",
        "queued",
        "cancelled",
        "failed",
        "dead",
        "succeeded",
    ]
    assert max(len(job.last_error or "") for job in jobs) <= 1000
