"""What a lost worker costs its jobs: nothing for what had not begun, the first time nothing for
what may have begun, and nothing where another job may be at fault; then an attempt.
"""

from __future__ import annotations

import msgspec
import psycopg
import pytest

import rota
from rota.declare.declaration import make_row
from rota.model.job import Job
from rota.model.settle import RetryRules
from rota.store import ops
from tests.store.work import BEGINNING, HAND_BACK, Connection, Hand, expire, insert
from tests.support.rules import rule

STANDING = (
    "select status, attempts, coalesce(losses, 0), claims, start_recorded, run_at <= rota.clock() "
    "from rota.job"
)


def declare(connection: Connection, **options: object) -> None:
    jobs = rota.Jobs()
    jobs.job("t", **options)(_nothing)  # type: ignore[call-overload]
    Hand(connection).run(
        ops.declare(
            msgspec.json.encode([make_row(jobs.types["t"]._declaration, 60.0)]).decode(), "1"
        )
    )


def _nothing() -> None: ...


def lost(connection: Connection, hand: Hand, *, recorded: bool) -> ops.Reaped:
    """Claim the job, record its start or not, and let the lease expire."""
    [job] = hand.claim().jobs
    if recorded:
        assert hand.start(job) == {job.id}
    expire(connection)
    [reaped] = hand.reap()
    assert (reaped.job, reaped.claim, reaped.worker) == (job.id, job.claims, hand.name)
    return reaped


def standing(connection: Connection) -> tuple[object, ...]:
    return connection.execute(STANDING).fetchall()[0]


@rule("M33")
def test_a_job_that_may_only_have_been_buffered_comes_back_uncharged_the_first_time_and_due_at_once(
    shared: Connection,
) -> None:
    insert(shared)
    reaped = lost(shared, Hand(shared), recorded=False)

    assert reaped.status == "queued"
    assert standing(shared) == ("queued", 0, 1, 2, None, True)
    said = shared.execute(
        "select worker, outcome, error_type, message from rota.attempt"
    ).fetchall()
    assert said == [
        (
            "hand",
            "queued",
            "LeaseExpired",
            "worker hand let its lease expire: it died, froze or lost the database; not counted, "
            "because it may not have begun",
        )
    ]


@rule("M33")
def test_a_second_loss_is_charged_by_the_plan_of_the_type(shared: Connection) -> None:
    declare(shared, retry=rota.Delays("70s", "90s", jitter=0), max_attempts=2)
    insert(shared)
    hand = Hand(shared)
    lost(shared, hand, recorded=False)

    assert lost(shared, hand, recorded=True).status == "failed"
    row = shared.execute(
        "select status, attempts, losses, run_at - failed_at = interval '70 s', error_type from "
        "rota.job"
    ).fetchall()
    assert row == [("failed", 1, 2, True, "LeaseExpired")]

    shared.execute("update rota.job set run_at = rota.clock()")
    assert lost(shared, hand, recorded=True).status == "dead"
    assert shared.execute(
        "select status, attempts, losses, locked_by from rota.job"
    ).fetchall() == [("dead", 2, 3, None)]


@rule("M33")
def test_jobs_that_began_beside_others_are_not_charged_for_a_loss_but_it_counts(
    shared: Connection,
) -> None:
    [alone, *beside] = insert(shared, 3)
    hand = Hand(shared)
    for said in ("it may not have begun", "another job may be at fault"):
        jobs = hand.claim().jobs
        hand.run(ops.start([(job.id, job.claims, job.id in beside) for job in jobs]))
        if said == "it may not have begun":
            shared.execute("update rota.job set start_recorded = null")
        expire(shared)
        hand.reap()
    assert shared.execute(
        "select id, status, attempts, losses from rota.job order by id"
    ).fetchall() == [(alone, "failed", 1, 2), *((id_, "queued", 0, 2) for id_ in beside)]
    messages = shared.execute(
        "select distinct split_part(message, '; ', 2) from rota.attempt where job = any (%s)",
        [beside],
    ).fetchall()
    assert sorted(messages) == [
        ("not counted, because another job may be at fault",),
        ("not counted, because it may not have begun",),
    ]


@rule("M33")
def test_a_claim_of_a_job_that_was_lost_asks_for_its_start_to_be_recorded(
    shared: Connection,
) -> None:
    insert(shared)
    hand = Hand(shared)
    claimed = hand.claim()
    assert (set(claimed.unrecorded), claimed.jobs[0].losses) == (set(), 0)
    expire(shared)
    hand.reap()

    claimed = hand.claim()
    assert (set(claimed.unrecorded), claimed.jobs[0].losses) == ({claimed.jobs[0].id}, 1)


@rule("M33")
@pytest.mark.parametrize("why", ["the job has one attempt", "the type records", "an old loss"])
def test_what_was_lost_before_its_start_was_recorded_comes_back_uncharged_however_often(
    shared: Connection, why: str
) -> None:
    insert(
        shared,
        max_attempts=1 if why == "the job has one attempt" else None,
        losses=1 if why == "an old loss" else None,
    )
    hand = Hand(shared, records=["t"] if why == "the type records" else [])
    for claims in (2, 4, 6):
        assert lost(shared, hand, recorded=False).status == "queued"
        assert standing(shared) == (
            "queued",
            0,
            1 if why == "an old loss" else 0,
            claims,
            None,
            True,
        )


@rule("M33", "M42")
def test_a_job_with_one_attempt_is_dead_when_its_recorded_start_is_lost(shared: Connection) -> None:
    insert(shared, max_attempts=1)
    assert lost(shared, Hand(shared), recorded=True).status == "dead"
    assert standing(shared)[:3] == ("dead", 1, 1)


@rule("M33")
def test_with_on_lost_dead_a_recorded_start_that_is_lost_ends_the_job(shared: Connection) -> None:
    declare(shared, on_lost="dead", max_attempts=5)
    insert(shared)
    assert lost(shared, Hand(shared, records=["t"]), recorded=True).status == "dead"
    assert standing(shared)[:3] == ("dead", 1, 1)


@rule("M32", "M33")
def test_a_start_is_recorded_only_by_who_still_holds_the_claim(shared: Connection) -> None:
    insert(shared, max_attempts=1)
    late, successor = Hand(shared, "late"), Hand(shared, "successor")
    [stale] = late.claim().jobs
    expire(shared)
    late.reap()
    [job] = successor.claim().jobs

    assert late.run(ops.start([(stale.id, stale.claims, False)])) == {}, (
        "it is lost, not only locked"
    )
    assert shared.execute("select locked_by, start_recorded from rota.job").fetchall() == [
        ("successor", False)
    ]
    assert successor.start(job) == successor.start(job) == {job.id}, (
        "asked again, because an answer was lost, it says the same"
    )


@rule("M33")
def test_a_start_whose_row_is_locked_keeps_no_other_from_being_recorded(
    connection: Connection, database: str
) -> None:
    insert(connection, 3, max_attempts=1)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    connection.execute("set lock_timeout = '5 s'")
    with psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [jobs[1].id])
        said = hand.run(ops.start([(job.id, job.claims, False) for job in jobs]))
    assert said == {jobs[0].id: True, jobs[1].id: False, jobs[2].id: True}
    assert hand.start(jobs[1]) == {jobs[1].id}


@rule("M33")
def test_a_job_that_is_handed_back_begins_anew(shared: Connection) -> None:
    insert(shared, max_attempts=1)
    hand = Hand(shared)
    [job] = hand.claim().jobs
    hand.start(job)
    hand.settle((job, HAND_BACK), ran_s=None)
    assert standing(shared) == ("queued", 0, 0, 2, None, True)


# When


def up_for(connection: Connection, seconds: float) -> None:
    connection.execute(
        (
            f"create or replace function rota.uptime() returns interval language sql stable as "
            f"$$select interval '{seconds} s'$$"
        ).encode()
    )


def held(connection: Connection, hand: Hand) -> Job:
    insert(connection)
    [job] = hand.claim().jobs
    expire(connection)
    return job


@rule("M33")
@pytest.mark.parametrize(("lease", "waits_s"), [("40s", 20), ("2m", 60), ("10m", 60)])
def test_after_the_server_came_up_half_a_lease_is_left_to_those_who_could_not_renew(
    shared: Connection, lease: str, waits_s: int
) -> None:
    declare(shared, lease=lease)
    hand = Hand(shared)
    job = held(shared, hand)
    up_for(shared, waits_s - 1)
    assert hand.reap() == []
    assert hand.renew(job) == {job.id}, "until then its holder may come back"
    expire(shared)
    up_for(shared, waits_s + 1)
    assert [loss.job for loss in hand.reap()] == [job.id]


@rule("M33")
def test_a_worker_whose_own_connection_was_away_waits_as_long_and_a_fresh_one_does_not(
    shared: Connection,
) -> None:
    declare(shared, lease="40s")
    hand = Hand(shared)
    job = held(shared, hand)
    assert hand.reap(steady_s=19) == []
    assert [loss.job for loss in hand.reap(steady_s=None)] == [job.id]

    [job] = hand.claim().jobs
    expire(shared)
    assert [loss.job for loss in hand.reap(steady_s=21)] == [job.id]


@rule("M31", "M33")
@pytest.mark.parametrize(
    ("step_s", "left_s", "leaves_s"),
    [
        # forward: the clock passed the end of each lease
        (3600, 30, 30),
        (3600, 5, 20),  # half of the lease, so that its worker can renew it
        (3600, -5, None),  # it had expired before
        # back: the clock reaches the end of a lease an hour late
        (-3600, 30, 30),
        (-3600, 5, 20),
        (-3600, 40 - 3600, 20),  # renewed after the step, by a worker that lives
    ],
)
def test_a_step_of_the_servers_clock_moves_the_leases_along(
    shared: Connection, step_s: int, left_s: int, leaves_s: int | None
) -> None:
    declare(shared, lease="40s")
    hand = Hand(shared)
    job = held(shared, hand)
    shared.execute(
        "update rota.job set locked_until = rota.clock() + %s * interval '1 s'", [left_s - step_s]
    )
    for _ in range(2):  # another worker notices it, too
        lost = hand.run(ops.reap(BEGINNING, 100, None, (step_s, 0.0)))[1]
        assert [loss.job for loss in lost] == ([job.id] if leaves_s is None else [])
        if leaves_s is None:
            break
        left = "select extract(epoch from locked_until - rota.clock())::int from rota.job"
        assert shared.execute(left).fetchone() == (leaves_s,)
    assert hand.reap() == []


@rule("M33")
def test_what_had_to_wait_is_found_though_the_passes_have_gone_on(shared: Connection) -> None:
    hand = Hand(shared)
    job = held(shared, hand)
    shared.execute("update rota.job set locked_until = rota.clock() - interval '10 minutes'")
    now = hand.claim().started  # a pass that reads from here on would not see it
    up_for(shared, 61)
    assert [loss.job for loss in hand.run(ops.reap(now, 100))[1]] == [job.id]


@rule("M32")
def test_a_locked_row_does_not_keep_others_from_being_renewed(
    connection: Connection, database: str
) -> None:
    insert(connection, 3)
    hand = Hand(connection)
    jobs = hand.claim().jobs
    connection.execute(
        "update rota.job set locked_until = rota.clock() + interval '1 s'; set lock_timeout = '5 s'"
    )
    with psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [jobs[1].id])
        said = hand.run(ops.renew([(job.id, job.claims) for job in jobs], hand.who))
        assert said.held == {job.id for job in jobs}, "it is still held"
        assert said.renewed == {jobs[0].id, jobs[2].id}
        renewed = connection.execute(
            "select id from rota.job where locked_until > rota.clock() + interval '30 s' order by "
            "id"
        ).fetchall()
    assert renewed == [(jobs[0].id,), (jobs[2].id,)]


@rule("M33")
@pytest.mark.parametrize("max_attempts", [1, 2])
@pytest.mark.parametrize("on_lost", ["retry", "dead"])
def test_python_and_sql_agree_whose_start_must_be_recorded(
    shared: Connection, max_attempts: int, on_lost: str
) -> None:
    rules = RetryRules(max_attempts, rota.Fixed("1s"), dead_if_lost=on_lost == "dead")
    for losses in (None, 0):
        row = shared.execute(
            "select rota.must_record_start(%s::smallint, %s, %s)", [losses, max_attempts, on_lost]
        ).fetchone()
        assert row == (rules.must_record_start,)
