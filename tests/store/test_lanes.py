"""Lanes: jobs with one group_key run one after the other, in the order of becoming due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest

from rota.errors import UsageError
from rota.model.job import Action, Job, Status
from rota.model.settle import Transition
from rota.store import ops
from tests.store.work import (
    BEGINNING,
    FAIL,
    GIVE_UP,
    HAND_BACK,
    SNOOZE,
    SUCCEED,
    Connection,
    Hand,
    act,
    after_it_waited,
    expire,
    insert,
)
from tests.support.rules import rule

AT_LIMIT = Transition(
    "hand_back", Status.QUEUED, charged=False, delay_s=60.0, waits_for="limit smtp"
)
TYPES = ("t", "releases", "halts")
DECLARED = (
    "insert into rota.job_type (name, on_retry, on_dead) "
    "values ('releases', 'release', 'continue'), ('halts', 'hold', 'halt')"
)
DUE_NOW = "update rota.job set run_at = rota.clock() where status in ('queued', 'failed')"


@pytest.fixture
def another(second: Connection) -> Connection:
    """Another session: here the second is a job."""
    return second


def claim_ids(hand: Hand, limit: int = 100) -> list[int]:
    return [job.id for job in hand.claim(limit).jobs]


def end(hand: Hand, job: Job, transition: Transition = SUCCEED) -> None:
    """Write how a job with a lane ended, as a finisher does."""
    ending = ops.Ending(job, transition, 0.5, frees_place=True)
    write = ops.finish if transition.status.is_over else ops.leave
    written = hand.run(write([ending], hand.release))
    assert isinstance(written[job.id], ops.Written), written


def statuses(connection: Connection) -> list[tuple[str, bool | None]]:
    rows = connection.execute("select status, in_lane from rota.job order by id").fetchall()
    return [(row[0], row[1]) for row in rows]


def sweep(hand: Hand) -> int:
    """Look for free places once, one room at a time; how many jobs got one."""
    found = hand.run(ops.sweep_rooms("", 1))
    released = found.released
    while found.last_room:
        found = hand.run(ops.sweep_rooms(found.last_room, 1))
        released += found.released
    return released


def count_stripes(connection: Connection) -> int:
    rows = connection.execute(
        "select from pg_locks where pid = pg_backend_pid() and classid = 1919906914"
    )
    return len(rows.fetchall())


# The order of a lane


@rule("M60")
def test_one_job_of_a_lane_is_claimed_and_the_others_are_parked(connection: Connection) -> None:
    first, second, *_ = insert(connection, 4, group_key="g")
    plain = insert(connection, 2)
    hand = Hand(connection)
    claimed = hand.claim(2)
    assert [job.id for job in claimed.jobs] == [first]
    assert claimed.jobs[0].group_key == "g"
    assert (claimed.count(), claimed.seen[-1].id) == (2, second), "how far it came"
    assert claim_ids(hand) == plain
    assert statuses(connection)[:4] == [("running", True), *[("waiting", None)] * 3]
    assert claim_ids(hand) == []


@rule("M60")
def test_a_lane_runs_by_priority_then_time_then_id(connection: Connection) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    connection.execute("alter table rota.job disable trigger job_insert_fill")
    late = insert(connection, group_key="g", run_at=now + timedelta(hours=1))
    early = insert(connection, 2, group_key="g", run_at=now)
    urgent = insert(connection, group_key="g", priority=50, run_at=now + timedelta(hours=2))
    hand = Hand(connection, priorities=[0, 50])
    order = []
    for _ in range(4):
        [job] = hand.claim().jobs
        order.append(job.id)
        end(hand, job)
    assert order == [*urgent, *early, *late]


@rule("M60")
def test_a_job_that_is_not_due_holds_back_no_later_one_that_is(connection: Connection) -> None:
    insert(connection, group_key="g", priority=50, run_at="2099-01-01Z")
    insert(connection, 5, group_key="g", run_at="2099-01-01Z")
    due = insert(connection, 2, group_key="g", priority=-50)
    hand = Hand(connection, priorities=[50, 0, -50])
    [job] = hand.claim().jobs
    end(hand, job)
    assert [job.id, *claim_ids(hand)] == due


@rule("M60")
def test_a_lane_with_a_capacity_runs_so_many_at_once_by_time_and_not_by_id(
    connection: Connection,
) -> None:
    *_, fourth, third, second, first = insert(connection, 6, group_key="g", group_capacity=2)
    connection.execute("update rota.job set run_at = run_at - id * interval '1 minute'")
    hand = Hand(connection)
    [running] = hand.claim(1).jobs
    assert [running.id, *claim_ids(hand, 1)] == [first, second]
    assert claim_ids(hand) == []  # the others are parked
    end(hand, running)
    [other] = hand.claim().jobs
    end(hand, other)
    assert [other.id, *claim_ids(hand)] == [third, fourth]


@rule("M60")
def test_two_workers_that_claim_one_lane_at_once_get_one_job(
    connection: Connection, another: Connection
) -> None:
    """Each has locked a job of the lane before the other decides."""
    [first, _] = insert(connection, 2, group_key="g")
    a, b = Hand(connection, "a"), Hand(another, "b")
    with connection.transaction():
        assert claim_ids(a, 1) == [first]
        # b has the other row, and gives up the lane that a holds.
        assert claim_ids(b) == []
    assert statuses(connection) == [("running", True), ("queued", None)]
    assert claim_ids(b) == []
    assert statuses(connection) == [("running", True), ("waiting", None)]


@rule("M60")
def test_a_claim_decides_after_the_one_that_it_waited_for(
    connection: Connection, another: Connection
) -> None:
    insert(connection, 2, group_key="g")
    a, b = Hand(connection, "a"), Hand(another, "b")
    connection.execute("begin")
    assert len(claim_ids(a, 1)) == 1
    commit = partial(connection.execute, "commit")
    assert after_it_waited(connection, another, lambda: claim_ids(b), commit) == []
    assert [status for status, _ in statuses(connection)] == ["running", "waiting"]


@rule("M60", "M61")
def test_claims_go_round_the_lanes(connection: Connection) -> None:
    """One tenant's many jobs are parked at once, so another's single one is claimed next."""
    many = insert(connection, 3_000, group_key="big")
    [single] = insert(connection, group_key="small")
    hand = Hand(connection)
    assert claim_ids(hand, 10) == [many[0]]
    found = []
    for _ in range(5):
        found += claim_ids(hand, 10)
    assert found == [single]


# What keeps a place and what frees it


@rule("M60")
def test_the_end_of_an_attempt_keeps_or_frees_its_place_in_the_same_transaction(
    connection: Connection,
) -> None:
    connection.execute(DECLARED)
    ends = {
        "succeeds": ("t", SUCCEED, "next"),
        "dies": ("t", GIVE_UP, "next"),
        "fails": ("t", FAIL, "again"),
        "snoozes": ("t", SNOOZE, "again"),
        "comes back": ("t", HAND_BACK, "again"),
        "fails and releases": ("releases", FAIL, "next"),
        "snoozes and releases": ("releases", SNOOZE, "next"),
        "waits for a limit": ("releases", AT_LIMIT, "again"),
        "dies and halts": ("halts", GIVE_UP, None),
    }
    jobs = {
        lane: insert(connection, 2, group_key=lane, job_type=how[0]) for lane, how in ends.items()
    }
    hand = Hand(connection, types=TYPES)
    for job in hand.claim().jobs:
        assert job.id == jobs[str(job.group_key)][0]
        end(hand, job, ends[str(job.group_key)][1])
    connection.execute(DUE_NOW)
    follows: dict[str, str | None] = dict.fromkeys(ends)
    for job in hand.claim().jobs:
        lane = str(job.group_key)
        follows[lane] = ("again", "next")[jobs[lane].index(job.id)]
    assert follows == {lane: then for lane, (_, _, then) in ends.items()}
    halted = connection.execute(
        "select status, waits_for from rota.jobs where group_key like '%alts'"
    )
    left = [("dead", "person"), ("waiting", "group dies and halts")]
    assert sorted(halted.fetchall(), key=str) == left


@rule("M60", "M33", "M36")
def test_a_loss_and_an_expiry_keep_or_free_a_place(connection: Connection) -> None:
    connection.execute(DECLARED)
    kept = insert(connection, 2, group_key="lost", max_attempts=2)
    last = insert(connection, 2, group_key="lost at last", max_attempts=1)
    freed = insert(connection, 2, group_key="lost, and releases", job_type="releases")
    passed = insert(connection, 3, group_key="expires before its turn", job_type="halts")
    unserved = insert(connection, group_key="expires", queue="unserved")
    unserved += insert(connection, group_key="expires")
    hand = Hand(connection, types=TYPES)
    claimed = {job.id: job for job in hand.claim().jobs}
    assert sorted(claimed) == [kept[0], last[0], freed[0], passed[0]]
    connection.execute(
        "update rota.job set expires_at = rota.clock() - interval '1 s' where id = any (%s)",
        [[passed[1], unserved[0]]],
    )
    hand.run(ops.expire("w", BEGINNING, 0, 10))
    end(hand, claimed[passed[0]])
    hand.start(*(claimed[jobs[0]] for jobs in (kept, last, freed)))
    expire(connection)
    assert {lost.job: str(lost.status) for lost in hand.reap()} == {
        kept[0]: "failed", last[0]: "dead", freed[0]: "failed",
    }  # fmt: skip
    connection.execute(DUE_NOW)
    assert sorted(claim_ids(hand)) == [kept[0], last[1], freed[1], passed[2], unserved[1]]


@rule("M44", "M60", "M87")
def test_a_place_goes_on_after_whatever_a_person_does_to_its_holder(connection: Connection) -> None:
    connection.execute(DECLARED)
    does = {
        "retry": ("t", FAIL, "again"),
        "cancel": ("t", FAIL, "next"),
        "discard": ("t", FAIL, "next"),
        "delete": ("t", FAIL, "next"),
        "archive": ("halts", GIVE_UP, "next"),
        "requeue": ("halts", GIVE_UP, "new"),
    }
    jobs = {
        lane: insert(connection, 2, group_key=lane, job_type=how[0]) for lane, how in does.items()
    }
    hand = Hand(connection, types=TYPES)
    for job in hand.claim().jobs:
        end(hand, job, does[str(job.group_key)][1])
    for lane, (holder, _) in jobs.items():
        if lane == "delete":
            connection.execute("delete from rota.job where id = %s", [holder])
        else:
            hand.run(act(Action(lane), holder, why="of no use"))
    swept = sum(then == "next" for _, _, then in does.values())
    assert sweep(hand) == swept
    follows = {}
    for job in hand.claim().jobs:
        lane = str(job.group_key)
        names = {jobs[lane][0]: "again", jobs[lane][1]: "next"}
        follows[lane] = names.get(job.id, "new")
    assert follows == {lane: then for lane, (_, _, then) in does.items()}


@rule("M60")
def test_a_release_passes_a_job_by_that_waits_for_something_else_by_now(
    connection: Connection,
) -> None:
    hand, ids = Hand(connection), insert(connection, 2, group_key="g")
    assert (claim_ids(hand), claim_ids(hand)) == (ids[:1], [])
    release = "select rota.jobs_release(%s, %s, false)"
    assert connection.execute(release, [ids[1:], False]).fetchone() == (0,)
    connection.execute("update rota.job set waits_for = 'type t' where id = %s", ids[1:])
    assert connection.execute(release, [ids[1:], True]).fetchone() == (0,)


@rule("M60")
def test_a_job_that_has_a_place_or_waits_for_one_can_be_moved_to_later(
    connection: Connection,
) -> None:
    _, second, third, fourth = insert(connection, 4, group_key="g")
    hand = Hand(connection)
    [job] = hand.claim().jobs
    end(hand, job)
    moved = ops.Moved(delay=timedelta(hours=1))
    request = ops.ActionRequest(Action.RESCHEDULE, "ann", moved=moved)
    answers = hand.run(ops.act(request, [second, fourth]))
    assert [(answer.answer, answer.status) for answer in answers] == [("done", "queued")] * 2
    assert statuses(connection) == [("queued", None), ("waiting", None), ("queued", None)]
    sweep(hand)
    assert claim_ids(hand) == [third]


@rule("M60", "M54")
def test_an_end_and_a_cancel_in_an_own_transaction_take_no_stripe_there(
    connection: Connection, another: Connection
) -> None:
    first, second, third = insert(connection, 3, group_key="g")
    hand, other = Hand(connection), Hand(another)
    [job] = other.claim().jobs
    with another.transaction():
        assert other.run(ops.complete(job, 0.1, None, "1"))
        assert count_stripes(another) == 0
    other.run(ops.free_places([(job, "t")]))
    [job] = hand.claim().jobs
    assert (first, second) == (job.id - 1, job.id)
    end(hand, job, FAIL)
    with another.transaction():
        another.execute("select rota.job_cancel(array[%s::bigint])", [second])
        assert count_stripes(another) == 0
        assert sweep(hand) == 0
    assert sweep(hand) == 1
    assert claim_ids(hand) == [third]


# Other ways to claim


@rule("M60")
def test_a_job_claimed_by_its_id_waits_for_its_lane_too(connection: Connection) -> None:
    first, second = insert(connection, 2, group_key="g")
    [later] = insert(connection, group_key="g", run_at="2099-01-01Z")
    hand = Hand(connection)
    before = statuses(connection)
    for id_ in (second, later):
        with pytest.raises(
            UsageError, match=f"waits for its ordered group.* job {first} comes first"
        ):
            hand.run(ops.claim_one(hand.who, id_))
    assert statuses(connection) == before  # a refusal changes nothing
    assert [job.id for job in hand.run(ops.claim_one(hand.who, first)).jobs] == [first]
    with pytest.raises(UsageError, match=f"job {first} comes first"):
        hand.run(ops.claim_one(hand.who, second))


@rule("M60", "M15")
def test_a_worker_in_sql_keeps_to_lanes_and_passes_thousands_of_parked_jobs(
    connection: Connection,
) -> None:
    first, second, *_ = insert(connection, 2_500, group_key="g")
    [other] = insert(connection)
    claim = "select id, claims from rota.claim('default', '{t}', 'w', 1)"
    rows = connection.execute(claim).fetchall()
    assert [row[0] for row in rows] == [first]
    assert [row[0] for row in connection.execute(claim)] == [other]
    assert connection.execute(claim).fetchall() == []
    connection.execute("select rota.succeed(%s, %s)", rows[0])
    assert [row[0] for row in connection.execute(claim)] == [second]


@rule("M60")
def test_a_claim_under_an_old_snapshot_is_refused_in_words(connection: Connection) -> None:
    insert(connection)
    claim = "select id from rota.claim('default', '{t}', 'w', 5)"
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        assert len(connection.execute(claim).fetchall()) == 1, "without a lane"
    insert(connection, group_key="g")
    connection.execute("set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="isolation level"):
        connection.execute(claim)


@rule("M60")
def test_a_stripe_that_is_held_for_long_stops_neither_claims_nor_ends(
    connection: Connection, another: Connection
) -> None:
    """A program that claims in SQL, in a transaction that it leaves open, holds its stripes."""
    _, second = insert(connection, 2, group_key="g")
    insert(connection)
    hand = Hand(connection)
    [job, _] = hand.claim().jobs
    connection.execute("set statement_timeout = '5s'")  # as a worker's
    with another.transaction():
        another.execute("select rota.stripes_lock(array['group g'], 0)")
        insert(connection, group_key="g")
        insert(connection)
        assert len(claim_ids(hand)) == 1
        end(hand, job)
    assert sweep(hand) == 1
    assert claim_ids(hand) == [second]


@rule("M60")
def test_all_stripes_held_for_long_stop_no_job_without_a_lane(
    connection: Connection, another: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key) "
        "select 't', 'default', 0, n::text from generate_series(1, 200) n"
    )
    [plain] = insert(connection)
    connection.execute("set statement_timeout = '5s'")  # as a worker's
    with another.transaction():
        another.execute(
            "select rota.stripes_lock(array(select 'group ' || generate_series(1, 5000)), 0)"
        )
        assert claim_ids(Hand(connection), 1_000) == [plain]
    assert len(claim_ids(Hand(connection), 1_000)) == 200
