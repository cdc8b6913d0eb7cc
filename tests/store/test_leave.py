"""What becomes of a job that is not over: tried again, dead, put off, given back; or taken from a
worker that is gone.
"""

from __future__ import annotations

from datetime import timedelta

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from rota.model.settle import Transition
from rota.store import ops
from tests.store.planned import set_clock
from tests.store.work import (
    FAIL,
    GIVE_UP,
    HAND_BACK,
    PAYLOAD_MISMATCH,
    SNOOZE,
    Connection,
    Hand,
    expire,
    insert,
)
from tests.support.rules import rule


def _row(connection: Connection, columns: str) -> TupleRow | None:
    return connection.execute(f"select {columns} from rota.job".encode()).fetchone()


@rule("M40", "M43")
def test_a_failed_attempt_is_charged_recorded_and_tried_again_later(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection, "host:1", release="2026.1")
    job = hand.claim().jobs[0]
    written = hand.settle((job, FAIL), ran_s=2.0)
    assert written[job.id].status == "failed"
    row = _row(connection, "status, attempts, claims, locked_by, locked_until")
    assert row == ("failed", 1, 2, None, None)
    row = _row(connection, "last_error, error_type, verdict, verdict_rule")
    assert row == ("no route to host", "OSError", "transient", "default")
    row = _row(connection, "run_at - failed_at, failed_at - started_at")
    assert row == (timedelta(seconds=60), timedelta(seconds=2))
    kept = connection.execute(
        "select claim, attempt, worker, release, finished_at - started_at, outcome, message, "
        "stack, next_run_at from rota.attempt"
    ).fetchone()
    assert kept == (
        1, 1, "host:1", "2026.1", timedelta(seconds=2), "failed", "no route to host", "a stack",
        written[job.id].run_at,
    )  # fmt: skip


@rule("M42")
def test_a_dead_job_stays_where_it_is_for_a_person_and_keeps_its_key(
    connection: Connection,
) -> None:
    insert(connection, idempotency_key="k")
    hand = Hand(connection)
    job = hand.claim().jobs[0]
    hand.settle((job, GIVE_UP))
    row = _row(connection, "status, attempts, run_at, failed_at is not null")
    assert row == ("dead", 1, job.run_at, True)
    assert hand.claim().jobs == []
    assert connection.execute("select expires_at from rota.idempotency").fetchall() == [(None,)]
    kept = connection.execute("select outcome, next_run_at from rota.attempt").fetchone()
    assert kept == ("dead", None)


@rule("M36")
def test_an_outcome_can_say_dead_without_a_charge(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection)
    expired = Transition("give_up", GIVE_UP.status, charged=False, failure=GIVE_UP.failure)
    hand.settle((hand.claim().jobs[0], expired), ran_s=None)
    assert _row(connection, "status, attempts, started_at") == ("dead", 0, None)


def test_a_snooze_is_not_charged_and_leaves_no_attempt(connection: Connection) -> None:
    insert(connection)
    hand = Hand(connection)
    job = hand.claim().jobs[0]
    hand.settle((job, SNOOZE))
    row = _row(connection, "status, attempts, claims, run_at - updated_at")
    assert row == ("queued", 0, 2, timedelta(seconds=60))
    assert connection.execute("select from rota.attempt").fetchall() == []
    asked = connection.execute("select from rota.queue where look_back_to is not null")
    assert asked.fetchall() == []


@rule("M11")
def test_a_job_that_is_handed_back_says_what_it_waits_for_and_since_when(
    connection: Connection,
) -> None:
    set_clock(connection, "2030-01-01 12:00")
    insert(connection, run_at="2030-01-01 12:00Z")
    hand = Hand(connection)

    def hand_back(waits_for: str | None) -> TupleRow | None:
        job = hand.claim().jobs[0]
        outcome = {"id": job.id, "claims": job.claims, "status": "queued", "charged": False}
        outcome |= {"delay_s": 0, "waits_for": waits_for}
        connection.execute("select * from rota.job_leave(%s, '1')", [Jsonb([outcome])])
        return _row(connection, "waits_for, to_char(waits_since at time zone 'utc', 'HH24:MI')")

    assert hand_back("limit smtp") == ("limit smtp", "12:00")
    set_clock(connection, "2030-01-01 12:01")
    assert hand_back("limit smtp") == ("limit smtp", "12:00")
    assert hand_back("breaker crm") == ("breaker crm", "12:01")
    assert hand_back(None) == (None, None)


@rule("M32")
def test_of_two_outcomes_of_a_job_only_that_of_its_current_claim_is_written(
    connection: Connection,
) -> None:
    insert(connection)
    hand = Hand(connection)
    earlier = hand.claim().jobs[0]
    hand.settle((earlier, HAND_BACK))
    current = hand.claim().jobs[0]
    hand.run(ops.leave([ops.Ending(job, FAIL, 0.5) for job in (earlier, current)], hand.release))
    assert _row(connection, "status, claims") == ("failed", current.claims + 1)
    kept = connection.execute("select claim, attempt, finished_at - started_at from rota.attempt")
    assert kept.fetchall() == [(current.claims, 1, timedelta(seconds=0.5))]


@rule("M83")
def test_a_job_handed_back_is_uncharged_keeps_its_place_and_all_workers_are_asked_to_look_back(
    connection: Connection,
) -> None:
    insert(connection, queue="a", run_at="2026-01-01Z")
    insert(connection, 2, queue="b")
    connection.execute("update rota.job set run_at = '2026-01-01Z' where queue = 'a'")
    hand = Hand(connection, queues=["a", "b"])
    claimed = hand.claim()
    hand.settle(*((job, HAND_BACK) for job in claimed.jobs), ran_s=None)
    rows = connection.execute(
        "select id, status, attempts, claims, run_at, started_at from rota.job order by id"
    ).fetchall()
    assert rows == [
        (job.id, "queued", 0, 2, job.run_at, None)
        for job in sorted(claimed.jobs, key=lambda job: job.id)
    ]
    oldest = {
        queue: min(job.run_at for job in claimed.jobs if job.queue == queue) for queue in ("a", "b")
    }
    news = hand.claim(0).news
    assert {queue: to for queue, to, _ in news.look_back} == oldest
    assert all(asked_at > claimed.started for _, _, asked_at in news.look_back)


def test_a_look_back_is_written_at_most_once_a_second_unless_it_reaches_further(
    connection: Connection,
) -> None:
    set_clock(connection, "2026-01-14 09:00")
    hand = Hand(connection)
    for to, seen in (("2026-01-05Z", 5), ("2026-01-06Z", 5), ("2026-01-04Z", 4)):
        connection.execute("select rota.look_back('default', %s::timestamptz)", [to])
        [(queue, asked, _)] = hand.claim().news.look_back
        assert (queue, asked.day) == ("default", seen)
    connection.execute(
        "update rota.queue set look_back_asked_at = look_back_asked_at - interval '2 s'"
    )
    connection.execute("select rota.look_back('default', '2026-01-06Z'::timestamptz)")
    assert hand.claim().news.look_back[0][1].day == 6


# A payload that the code of this release cannot read


def _other(connection: Connection, release: str, **facts: str) -> None:
    Hand(connection, f"worker of {release}", release=release).send_heartbeat()
    for column, value in facts.items():
        connection.execute(
            f"update rota.worker set {column} = {value} where release = %s".encode(), [release]
        )


@rule("M12")
def test_a_payload_mismatch_is_kept_uncharged_for_another_release_that_is_alive(
    connection: Connection,
) -> None:
    insert(connection)
    hand = Hand(connection, release="1")
    hand.send_heartbeat()
    _other(connection, "2")
    job = hand.claim().jobs[0]
    assert hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)[job.id].status == "queued"
    row = _row(connection, "attempts, mismatched_releases, error_type, run_at - updated_at")
    assert row == (0, ["1"], "PayloadError", timedelta(0)), "it is due at once for the other"
    assert hand.claim().jobs == []
    assert len(Hand(connection, release="2").claim().jobs) == 1


@rule("M12")
def test_a_payload_mismatch_is_dead_when_no_other_release_can_be_expected_to_read_it(
    connection: Connection,
) -> None:
    cases: tuple[tuple[str, dict[str, dict[str, str]], str], ...] = (
        ("1", {}, "dead"),
        ("1", {"1": {}}, "dead"),
        ("1", {"2": {}}, "queued"),
        ("1", {"2": {"stopped_at": "now() - interval '59 min'"}}, "queued"),
        ("1", {"2": {"stopped_at": "now() - interval '61 min'"}}, "dead"),
        ("1", {"2": {"heartbeat_at": "now() - interval '61 min'"}}, "dead"),
        ("1", {"2": {"job_types": "'{other}'"}}, "dead"),
        ("1", {"unknown": {}}, "dead"),
        ("unknown", {"2": {}}, "dead"),
    )
    for release, others, status in cases:
        connection.execute("truncate rota.job, rota.worker, rota.attempt")
        insert(connection)
        for other, facts in others.items():
            _other(connection, other, **facts)
        hand = Hand(connection, release=release)
        job = hand.claim().jobs[0]
        written = hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)
        assert written[job.id].status == status, (release, others)
        kept = connection.execute("select outcome, error_type from rota.attempt").fetchall()
        assert kept == [(status, "PayloadError")]
    connection.execute("truncate rota.job, rota.worker")
    # By a producer of release 2, whose first worker is still to come; `u` is of another App.
    for types, status in ((["u"], "dead"), (["t"], "queued"), (None, "dead"), (["u"], "queued")):
        insert(connection)
        if types is not None:
            Hand(connection).run(ops.declare_schedules("[]", "2", types, is_deploy=True))
        hand = Hand(connection, release="1")
        job = hand.claim().jobs[0]
        assert hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)[job.id].status == status
        connection.execute("update rota.release set declared_at = now() - interval '61 min'")
    connection.execute("truncate rota.job, rota.release")
    insert(connection)
    for release, status in (("1", "queued"), ("2", "dead")):  # each has tried it then
        _other(connection, "1")
        _other(connection, "2")
        connection.execute("update rota.job set run_at = now()")
        hand = Hand(connection, release=release)
        job = hand.claim().jobs[0]
        assert hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)[job.id].status == status


# A worker that is gone


@rule("M33", "M43")
def test_a_lost_attempt_is_charged_and_names_its_worker(connection: Connection) -> None:
    insert(connection, losses=1)
    claimed = Hand(connection, "host:1").claim()
    Hand(connection, "host:1").start(*claimed.jobs)
    expire(connection)
    [lost] = Hand(connection, "other").reap()
    seen = (lost.worker, lost.claim, lost.attempt, lost.status, lost.job_type)
    assert seen == ("host:1", 1, 1, "failed", "t")
    found = _row(connection, "status, attempts, claims, locked_by, locked_until, error_type")
    assert found == ("failed", 1, 2, None, None, "LeaseExpired")
    row = connection.execute(
        "select worker, claim, outcome, started_at, next_run_at, message from rota.attempt"
    ).fetchone()
    assert row is not None
    assert row[:3] == ("host:1", 1, "failed") and row[3] > claimed.started and row[4] == lost.run_at
    assert "host:1" in row[5]


@rule("M33", "M42")
def test_a_job_that_kills_its_workers_is_dead_after_its_last_attempt(
    connection: Connection,
) -> None:
    hand = Hand(connection)
    for jobs_own, types, attempts in ((2, None, 2), (None, None, 10), (None, 3, 3), (2, 3, 2)):
        connection.execute("truncate rota.job")
        insert(connection, max_attempts=jobs_own, losses=1)
        if types is not None:
            connection.execute(
                "insert into rota.job_type (name, max_attempts) values ('t', %s) "
                "on conflict do nothing",
                [types],
            )
        seen: list[str] = []
        while not seen or seen[-1] != "dead":
            assert len(hand.start(*hand.claim().jobs)) == 1
            expire(connection)
            seen += [lost.status for lost in hand.reap()]
            connection.execute("update rota.job set run_at = now()")
        assert seen == ["failed"] * (attempts - 1) + ["dead"], (jobs_own, types)


@rule("M33", "M40")
def test_a_lost_job_comes_back_by_the_plan_of_its_type_also_under_an_old_name(
    connection: Connection,
) -> None:
    connection.execute(
        "insert into rota.job_type (name, aliases, retry_after) values ('new', '{t}', "
        "'{5 s,1 min}')"
    )
    insert(connection, losses=1)
    hand, waits = Hand(connection), []
    for _ in range(3):
        hand.start(*hand.claim().jobs)
        expire(connection)
        hand.reap()
        row = _row(connection, "extract(epoch from run_at - failed_at)::int")
        assert row is not None
        waits.append(row[0])
        connection.execute("update rota.job set run_at = now()")
    assert waits == [5, 60, 60]


@rule("M33")
def test_a_live_lease_is_not_reaped_and_a_batch_has_a_limit(connection: Connection) -> None:
    insert(connection, 5)
    hand = Hand(connection)
    hand.claim()
    assert hand.reap() == []
    expire(connection)
    assert [len(hand.reap(2)) for _ in range(4)] == [2, 2, 1, 0]


@rule("M33")
def test_two_reapers_do_not_wait_for_each_other_and_reap_each_job_once(
    connection: Connection, second: Connection
) -> None:
    insert(connection, 6, losses=1)
    Hand(connection).start(*Hand(connection).claim().jobs)
    expire(connection)
    second.execute("set lock_timeout = '1 s'")
    with connection.transaction():
        first = {lost.job for lost in Hand(connection).reap(4)}
        others = {lost.job for lost in Hand(second).reap(4)}
    assert (len(first), len(others)) == (4, 2)
    assert first.isdisjoint(others)
    assert connection.execute(
        "select count(*), max(claims) from rota.attempt a join rota.job j on j.id = a.job"
    ).fetchone() == (6, 2)
