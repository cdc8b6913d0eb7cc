"""Claims and leases, statement by statement, on two real connections."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from rota.store import ops
from tests.store.work import BEGINNING, FAIL, HAND_BACK, SUCCEED, Connection, Hand, expire, insert
from tests.support.rules import rule


@rule("M30")
def test_a_claim_does_not_wait_for_one_that_is_not_committed(
    database: str, connection: Connection
) -> None:
    insert(connection, 5)
    with psycopg.connect(database) as open_one:
        held = {job.id for job in Hand(open_one).claim(3).jobs}
        connection.execute("set lock_timeout = '1 s'")
        others = {job.id for job in Hand(connection).claim().jobs}
        assert (len(held), len(others)) == (3, 2)
        assert held.isdisjoint(others)
        open_one.rollback()
    assert {job.id for job in Hand(connection).claim().jobs} == held


@rule("M31", "M22")
def test_a_claim_is_a_lease_by_the_database_s_clock(shared: Connection) -> None:
    insert(shared)
    hand = Hand(shared, "host:1", lease=timedelta(seconds=90))
    claimed = hand.claim()
    row = shared.execute(
        "select status, locked_by, attempts, claims, locked_until - %s, started_at = %s from "
        "rota.job",
        [claimed.started, claimed.started],
    ).fetchone()
    assert row == ("running", "host:1", 1, 1, timedelta(seconds=90), True)
    assert [(job.attempts, job.claims, job.locked_by) for job in claimed.jobs] == [(1, 1, "host:1")]


@rule("M31")
def test_each_type_has_its_own_lease(shared: Connection) -> None:
    for job_type in ("a", "b"):
        insert(shared, job_type=job_type)
    leases = {"b": timedelta(seconds=5), "a": timedelta(hours=1)}
    started = Hand(shared, types=list(leases), leases=list(leases.values())).claim().started
    assert (
        dict(
            shared.execute("select job_type, locked_until - %s from rota.job", [started]).fetchall()
        )
        == leases
    )


@rule("M61")
def test_jobs_come_by_priority_then_by_run_at_then_by_id(shared: Connection) -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    placed = [(0, late), (5, late), (0, early), (5, early), (-5, early), (0, early)]
    ids = [insert(shared, priority=priority)[0] for priority, _ in placed]
    for id_, (_, run_at) in zip(ids, placed, strict=True):
        shared.execute("update rota.job set run_at = %s where id = %s", [run_at, id_])
    hand = Hand(shared, priorities=[0, 5, -5])
    one_by_one = [job.id for _ in range(3) for job in hand.claim(1).jobs]
    assert one_by_one + [job.id for job in hand.claim().jobs] == [
        ids[at] for at in (3, 1, 2, 5, 0, 4)
    ]


@rule("M21", "M22")
def test_a_job_is_claimed_when_its_time_has_come_and_not_before(shared: Connection) -> None:
    insert(shared, run_at=datetime(2100, 1, 1, tzinfo=UTC))
    hand = Hand(shared)
    assert hand.claim().jobs == []
    shared.execute("update rota.job set run_at = clock_timestamp()")
    assert len(hand.claim().jobs) == 1


@rule("M15")
def test_a_worker_claims_no_type_and_no_queue_and_no_priority_that_it_did_not_ask_for(
    shared: Connection,
) -> None:
    insert(shared, job_type="unknown")
    insert(shared, queue="other")
    insert(shared, priority=1)
    # Alone, without its way around rows that the database refuses.
    assert Hand(shared).claim(refused=None).jobs == []
    around = Hand(shared).claim(refused=[0])
    assert (around.jobs, around.refused) == ([], ())
    assert (
        len(
            Hand(shared, queues=["default", "other"], priorities=[0, 1], types=["unknown", "t"])
            .claim()
            .jobs
        )
        == 3
    )


@rule("M12")
def test_a_release_whose_code_could_not_read_a_payload_does_not_get_it_again(
    shared: Connection,
) -> None:
    insert(shared)
    shared.execute("update rota.job set mismatched_releases = '{2026.1,2026.2}'")
    assert Hand(shared, release="2026.2").claim().jobs == []
    assert len(Hand(shared, release="2026.3").claim().jobs) == 1


def test_a_claim_looks_only_ahead_of_its_frontier(shared: Connection) -> None:
    ids = insert(shared, 4)
    shared.execute("update rota.job set run_at = '2026-01-01Z'")
    hand = Hand(shared)
    assert [
        job.id for job in hand.claim(after=datetime(2026, 1, 1, tzinfo=UTC), after_id=ids[1]).jobs
    ] == ids[2:]
    assert hand.claim(after=datetime(2026, 1, 2, tzinfo=UTC)).jobs == []
    assert [job.id for job in hand.claim().jobs] == ids[:2]


def test_a_claim_takes_no_more_than_its_limit_over_all_queues(shared: Connection) -> None:
    for queue in ("a", "b", "c"):
        insert(shared, 10, queue=queue)
    hand = Hand(shared, queues=["a", "b", "c"])
    assert len(hand.claim(12).jobs) == 12
    assert shared.execute("select count(*) from rota.job where status = 'running'").fetchone() == (
        12,
    )


def claim_for_slots(
    hand: Hand, *groups: tuple[int, int, list[tuple[str, int]]]
) -> list[tuple[str, int]]:
    """Claim for groups of slots, each with its most jobs, the ordinary ones among them, and its
    branches; return the queue and priority of each job."""
    where = ops.Branches()
    for most, ordinary, branches in groups:
        where.jobs.append(most)
        where.ordinary.append(ordinary)
        where.lo.append(len(where.queues) + 1)
        for queue, priority in branches:
            where.queues.append(queue)
            where.priorities.append(priority)
            where.after_run_at.append(BEGINNING)
            where.after_id.append(0)
            where.depths.append(timedelta(0))
        where.hi.append(len(where.queues))
        where.urgent_hi.append(where.hi[-1] - sum(priority <= 0 for _, priority in branches))
    asked_since = dict.fromkeys(where.queues, BEGINNING)
    claimed = hand.run(ops.claim(hand.who, where, asked_since, None))
    return sorted((job.queue, job.priority) for job in claimed.jobs)


@rule("M61")
def test_queues_that_share_slots_give_no_more_ordinary_jobs_than_there_is_room_for(
    shared: Connection,
) -> None:
    hand = Hand(shared)
    for queue in ("a", "b"):
        insert(shared, 10, queue=queue)
    insert(shared, 1, queue="b", priority=5)
    both = [("a", 5), ("b", 5), ("a", 0), ("b", 0), ("b", -1)]
    assert claim_for_slots(hand, (10, 3, both)) == [("a", 0)] * 3 + [("b", 5)]
    insert(shared, 1, queue="b", priority=5)
    assert claim_for_slots(hand, (2, 2, both)) == [("a", 0), ("b", 5)], "the urgent come first"
    insert(shared, 1, queue="b", priority=-1)
    assert claim_for_slots(hand, (30, 17, both)) == sorted(
        [("a", 0)] * 6 + [("b", 0)] * 10 + [("b", -1)]
    )


@rule("M61")
def test_queues_with_slots_of_their_own_give_each_what_it_has_room_for(shared: Connection) -> None:
    hand = Hand(shared)
    for queue in ("a", "b"):
        insert(shared, 10, queue=queue)
        insert(shared, 3, queue=queue, priority=5)
    a, b = ([(queue, 5), (queue, 0)] for queue in ("a", "b"))
    assert (
        claim_for_slots(hand, (2, 0, a), (4, 2, b)) == [("a", 5)] * 2 + [("b", 0)] + [("b", 5)] * 3
    )


@rule("M61")
def test_a_claim_that_probes_learns_of_priorities_that_it_does_not_know(shared: Connection) -> None:
    for priority in (-100, 0, 3, 7, 100):
        insert(shared, 2, priority=priority)
    insert(shared, priority=50, status="dead")
    news = Hand(shared).claim(known={"default": [0, 7], "empty": []}).news
    assert sorted(news.priorities) == [("default", -100), ("default", 3), ("default", 100)]
    assert Hand(shared).claim(known=None).news.priorities == []


@rule("M32")
def test_a_renewal_names_the_claim_and_not_only_the_job(shared: Connection) -> None:
    insert(shared)
    hand = Hand(shared)
    first = hand.claim().jobs[0]
    expire(shared)
    assert hand.renew(first) == {first.id}, "an expired lease, until it is reaped"
    live = "select locked_until > rota.clock() from rota.job"
    assert shared.execute(live).fetchone() == (True,)
    hand.settle((first, HAND_BACK))
    again = hand.claim().jobs[0]
    assert (again.id, again.claims) == (first.id, 3)  # one for each claim, one for the way out
    assert hand.renew(first) == set()
    assert hand.renew(again, first) == {again.id}
    assert hand.settle((first, SUCCEED)) == hand.settle((first, FAIL)) == {}
    assert shared.execute("select status, claims from rota.job").fetchone() == ("running", 3)
