"""The statement that ends a job of a lane gives the next one to the same worker, if it is its
turn."""

from __future__ import annotations

from typing import Any

import pytest

from rota.model.job import Job
from rota.store import ops
from tests.store.work import BEGINNING, Connection, Hand, expire, insert, make_branches
from tests.support.rules import rule


def finish(hand: Hand, *jobs: Job, where: ops.Branches | None = None) -> ops.Claimed:
    """End jobs, as a finisher does; what it got with that."""
    where = make_branches("default") if where is None else where
    claims = [(job.id, job.claims, 0.5) for job in jobs]
    done = hand.run(ops.finish_and_pass(claims, hand.who, where))
    assert done is not None
    assert done[0] == {job.id for job in jobs}
    return done[1]


def find_status(connection: Connection, id_: int) -> str:
    row = connection.execute("select status from rota.job where id = %s", [id_]).fetchone()
    assert row is not None
    return str(row[0])


def begin(connection: Connection, **columns: Any) -> tuple[Hand, Job, list[int]]:
    """A worker that runs the first of three jobs of a lane; the others wait."""
    ids = insert(connection, 3, group_key="g", **columns)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    assert job.id == ids[0]
    return hand, job, ids[1:]


@rule("M60", "M31")
def test_the_end_of_a_job_claims_the_next_of_its_lane(shared: Connection) -> None:
    hand, job, (second, third) = begin(shared, payload='{"a": 1}', meta='{"m": "x"}')
    for next_ in (second, third):
        passed = finish(hand, job)
        [job] = passed.jobs
        assert (job.id, job.claims, job.attempts, job.locked_by) == (next_, 1, 1, hand.name)
        assert (job.payload_json, job.meta_json, job.group_key) == ('{"a": 1}', '{"m": "x"}', "g")
        assert (job.started_at, passed.suspects, passed.unrecorded) == (
            passed.started,
            frozenset(),
            frozenset(),
        )
        row = shared.execute(
            "select status, locked_by, locked_until - started_at, in_lane from rota.job "
            "where id = %s",
            [job.id],
        ).fetchone()
        assert row == ("running", hand.name, hand.lease, True)
    assert finish(hand, job).jobs == []
    assert shared.execute("select count(*) from rota.job_history").fetchall() == [(3,)]


@rule("M60")
def test_a_lane_with_a_capacity_passes_on_as_many_as_have_a_place(shared: Connection) -> None:
    ids = insert(shared, 5, group_key="g", group_capacity=2)
    hand = Hand(shared)
    running = hand.claim().jobs
    assert [job.id for job in running] == ids[:2]
    assert [job.id for job in finish(hand, *running).jobs] == ids[2:4]


@rule("M60")
def test_the_first_of_several_lanes_are_passed_on_together(shared: Connection) -> None:
    ids = [id_ for lane in "abc" for id_ in insert(shared, 2, group_key=lane)]
    hand = Hand(shared)
    running = hand.claim().jobs
    assert [job.id for job in running] == ids[::2]
    assert [job.id for job in finish(hand, *running).jobs] == ids[1::2]


@pytest.mark.parametrize(
    ("queue", "priority", "passes"),
    [
        pytest.param("default", 0, False, id="the same queue and priority"),
        pytest.param("default", 5, False, id="a higher priority"),
        pytest.param("default", -5, True, id="a lower priority"),
        pytest.param("other", 0, True, id="slots of its own"),
        pytest.param("beside", 0, False, id="another queue with the same slots"),
        pytest.param("unknown", 0, True, id="a queue that the worker does not serve"),
    ],
)
@rule("M60")
def test_a_lane_takes_no_turn_of_a_job_that_is_ready(
    shared: Connection, queue: str, priority: int, passes: bool
) -> None:
    hand, job, (second, _) = begin(shared)
    [ready] = insert(shared, queue=queue, priority=priority)
    where = make_branches("default", "other", priorities=(5, 0, -5))
    where.queues[2:2] = ["beside"]
    where.priorities[2:2] = [0]
    where.after_run_at.append(BEGINNING)
    where.after_id.append(0)
    where.lo[1:] = [5]
    where.hi[:] = [4, 7]
    passed = finish(hand, job, where=where)
    assert [job.id for job in passed.jobs] == ([second] if passes else [])
    assert find_status(shared, second) == ("running" if passes else "queued")
    assert find_status(shared, ready) == "queued"


@rule("M60")
def test_a_job_of_an_unknown_type_or_one_that_is_not_due_has_no_turn_before(
    shared: Connection,
) -> None:
    hand, job, (second, third) = begin(shared)
    insert(shared, job_type="foreign")
    shared.execute("insert into rota.job_type (name, max_running) values ('other', 5)")
    passed = finish(hand, job)
    assert [claimed.id for claimed in passed.jobs] == [second]
    [later] = insert(shared)
    shared.execute(
        "update rota.job set run_at = rota.clock() + interval '1 h' where id = %s", [later]
    )
    assert [claimed.id for claimed in finish(hand, *passed.jobs).jobs] == [third]


@pytest.mark.parametrize(
    "hinder",
    [
        pytest.param("select rota.queue_pause('default')", id="its queue is paused"),
        pytest.param("select rota.pause_all()", id="all queues are paused"),
        pytest.param(
            "insert into rota.queue (name, max_running) values ('default', 5) "
            "on conflict (name) do update set max_running = 5",
            id="its queue has a cap",
        ),
        pytest.param(
            "insert into rota.job_type (name, max_running) values ('t', 5)", id="its type has a cap"
        ),
        pytest.param(
            "update rota.job set mismatched_releases = '{1}' where in_lane is null",
            id="its payload does not fit the release",
        ),
        pytest.param(
            "update rota.job set job_type = 'foreign' where in_lane is null",
            id="the worker does not know its type",
        ),
        pytest.param(
            "update rota.job set queue = 'foreign' where in_lane is null",
            id="the worker does not serve its queue",
        ),
    ],
)
@rule("M60", "M61")
def test_a_job_that_this_worker_may_not_claim_is_made_due(shared: Connection, hinder: str) -> None:
    hand, job, (second, _) = begin(shared)
    shared.execute(hinder.encode())
    assert finish(hand, job).jobs == []
    assert find_status(shared, second) == "queued"


@rule("M60")
@pytest.mark.parametrize("room", [2, 0])
def test_as_many_jobs_are_passed_as_there_is_room_for(shared: Connection, room: int) -> None:
    for lane in "abc":
        insert(shared, 2, group_key=lane)
    hand = Hand(shared)
    passed = finish(hand, *hand.claim().jobs, where=make_branches("default", room=room))
    assert len(passed.jobs) == room
    assert dict(shared.execute("select status, count(*) from rota.job group by 1").fetchall()) == {
        "queued": 3 - room
    } | ({"running": room} if room else {})


@rule("M60")
def test_no_later_job_passes_one_that_is_locked_and_other_lanes_go_on(
    connection: Connection, second: Connection
) -> None:
    ids = [id_ for lane in "ab" for id_ in insert(connection, 3, group_key=lane)]
    hand = Hand(connection)
    running = hand.claim().jobs
    connection.execute("set lock_timeout = '1s'")
    with second.transaction():
        second.execute("select from rota.job where id = %s for update", [ids[1]])
        assert [job.id for job in finish(hand, *running).jobs] == [ids[4]]
        assert find_status(connection, ids[2]) == "waiting"


@rule("M32", "M60")
def test_a_lost_claim_ends_nothing_and_passes_nothing(shared: Connection) -> None:
    hand, job, (second, _) = begin(shared)
    expire(shared)
    hand.reap()
    done = hand.run(
        ops.finish_and_pass([(job.id, job.claims, 0.5)], hand.who, make_branches("default"))
    )
    assert done is not None
    assert (done[0], done[1].jobs) == (set(), [])
    assert find_status(shared, second) == "waiting"


@rule("M60", "M35")
def test_a_suspect_is_passed_on_as_one(shared: Connection) -> None:
    hand, job, (second, _) = begin(shared)
    shared.execute(
        "update rota.job set losses = 1, error_type = 'LeaseExpired' where id = %s", [second]
    )
    passed = finish(hand, job)
    assert [claimed.id for claimed in passed.jobs] == [second]
    assert passed.suspects == passed.unrecorded == {second}
