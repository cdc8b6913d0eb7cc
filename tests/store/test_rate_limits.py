"""Rate limits in the database: which jobs start, and when, and which wait in a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.errors import LimitNotFound
from rota.model.job import Job, Status
from rota.model.settle import Transition
from rota.store import ops
from rota.store.ops.finish import LIMIT_LOCKED
from tests.store.limits import BEGINNING, Limits
from tests.store.test_caps import cap_queue
from tests.store.test_lanes import end
from tests.store.work import Connection, insert
from tests.support.rules import rule

SECOND: dict[str, Any] = {"starts": 19, "per_s": 10, "burst": 10}
"""A start every second."""


@pytest.fixture
def limits(connection: Connection) -> Limits:
    return Limits(connection).begin()


def most_within(slots: Mapping[datetime, int], per: timedelta) -> int:
    """The highest cost in any window of this length, which its end is not part of."""
    windows = ([cost for at, cost in slots.items() if start <= at < start + per] for start in slots)
    return max(map(sum, windows), default=0)


@rule("M61", "M62")
def test_a_burst_starts_at_once_and_the_next_evenly(limits: Limits) -> None:
    limits.declare(**SECOND)
    jobs = limits.insert(12)
    assert limits.claim() == dict.fromkeys(jobs[:10], 0.0)
    waiting = limits.rows(
        "select id, waits_for, waits_since, locked_by, attempts, claims from rota.job "
        "where status = 'queued' order by id"
    )
    assert waiting == [(job, "limit smtp", limits.now, None, 0, 0) for job in jobs[10:]]
    assert limits.turns() == [1.0, 2.0]
    for job in jobs[10:]:
        limits.wait(0.9)
        assert limits.claim() == {}
        limits.wait(0.1)
        assert limits.claim() == {job: 0.0}


@rule("M62")
def test_a_worker_gets_starts_a_quarter_second_ahead_and_one_in_sql_none(limits: Limits) -> None:
    limits.declare(starts=99, per_s=1)
    spacing = 0.011  # as it is if a start may be 0.1 s late
    jobs = limits.insert(100)
    ahead = int((0.25 - spacing) / spacing)
    assert limits.claim() == {jobs[n]: pytest.approx(spacing * n) for n in range(ahead + 1)}
    limits.wait(0.25)
    assert len(limits.claim_in_sql()) == 1


@rule("M62")
def test_a_limit_that_is_not_there_lets_nothing_start_until_it_is(limits: Limits) -> None:
    [job] = limits.insert()
    assert limits.claim() == {}
    with pytest.raises(LimitNotFound, match="no rate limit 'smtp'"):
        limits.take()
    limits.declare()
    limits.replan()
    assert list(limits.claim()) == [job]


@rule("M62")
def test_a_job_says_its_key_and_cost_and_what_can_be_none_counts_as_none(limits: Limits) -> None:
    limits.declare(**SECOND)
    long, others = "k" * 255, {"limit": "m", "cost": 4}
    asked = "select key, cost from rota.limits_asked(%s)"
    for said, key, cost in (
        ({"key": "a", "cost": 10}, "a", 10), ({"key": -7, "cost": 11}, "-7", 10),
        ({"key": long, "cost": -2}, long, 1), ({"key": long + "k", "cost": 0}, "", 1),
        ({"key": 1.5, "cost": 1.5}, "", 1), ({"key": True, "cost": True}, "", 1),
        ({"key": None, "cost": None}, "", 1), ({"key": "a", "cost": "2"}, "a", 1),
        ({"key": "a", "cost": 2, "asks": others}, "m", 4), ({"asks": ["limit"]}, "", 1),
    ):  # fmt: skip
        assert limits.rows(asked, limits.insert(**said)) == [(key, cost)], said
    limits.connection.execute("update rota.job_type set cost = 7")
    assert limits.rows(asked, insert(limits.connection, payload="{}")) == [("none", 7)]


@rule("M62")
def test_takes_and_costs_share_a_budget_and_take_never_waits(limits: Limits) -> None:
    limits.declare(**SECOND)
    assert [limits.take(count) for count in (3, 6, 2, 1, 1)] == [True, True, False, True, False]
    three, eight, two = (limits.insert(cost=cost)[0] for cost in (3, 8, 2))
    for s, due in ((2.9, []), (0.1, [three]), (8, [eight]), (1.9, []), (0.1, [two])):
        limits.wait(s)
        assert list(limits.claim()) == due, "the second does not let the third pass"


def pick_figures(most: int) -> st.SearchStrategy[tuple[int, int]]:
    """Starts and burst."""
    return st.integers(1, most).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


SHARED = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
PRIORITIES = {"bulk": -1, "insert": 0, "urgent": 9}
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(list(PRIORITIES)), st.integers(1, 12), st.integers(1, 3)),
        st.tuples(st.sampled_from(["claim", "sql", "take"]), st.integers(1, 9), st.just(0)),
        st.tuples(st.sampled_from(["pass", "replan"]), st.integers(1, 2000), st.just(0)),
    ),
    max_size=30,
)


@rule("M62")
@SHARED
@given(figures=pick_figures(30), per_s=st.sampled_from([0.1, 0.5, 1, 5, 60]), actions=ACTIONS)
def test_slots_in_any_window_cost_at_most_the_limit_and_no_job_waits_for_ever(
    limits: Limits, figures: tuple[int, int], per_s: float, actions: list[tuple[str, int, int]]
) -> None:
    """Whatever is claimed, ahead or not, and taken, and however time passes."""
    starts, burst = figures
    limits.connection.execute("truncate rota.job, rota.rate_limit, rota.rate_limit_key")
    limits.freeze(BEGINNING)
    limits.hand.priorities = sorted(PRIORITIES.values(), reverse=True)
    limits.declare(starts=starts, burst=burst, per_s=per_s)
    pace = "select spacing, late from rota.rate_limit, rota.limit_pace(starts, per, burst)"
    [(spacing, late)] = limits.rows(pace)
    costs: dict[int, int] = {}
    slots: Counter[datetime] = Counter()

    def claim(found: dict[int, float]) -> None:
        for job, in_s in found.items():
            slots[limits.now + timedelta(seconds=in_s)] += costs.pop(job)

    for verb, count, cost in actions:
        if verb in PRIORITIES:
            jobs = limits.insert(count, cost=cost, priority=PRIORITIES[verb])
            costs |= dict.fromkeys(jobs, min(cost, burst))
        elif verb in ("claim", "sql"):
            claim(limits.claim(count) if verb == "claim" else limits.claim_in_sql(count))
        elif verb == "take":
            slots[limits.now] += count * (count <= burst and limits.take(count))
        elif verb == "pass":
            limits.wait(count / 1_000)
        else:
            limits.replan()
    for _ in range(len(costs) + 1):
        limits.wait(burst * spacing / 1e6)
        limits.replan()
        claim(limits.claim())
    assert costs == {}, "these wait for ever"
    per = timedelta(seconds=per_s)
    assert most_within(slots, per) <= starts
    assert most_within(slots, per + timedelta(microseconds=late)) <= starts + burst


@rule("M62")
def test_two_connections_never_get_the_same_slot(limits: Limits, database: str) -> None:
    limits.declare(starts=50, burst=50, per_s=3_600)

    def use(_: int) -> int:
        with psycopg.connect(database, autocommit=True) as own:
            limit = Limits(own)
            return sum(len(limit.insert(5) and limit.claim()) + limit.take() for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(use, range(4))) == 50


@rule("M62")
@SHARED
@given(figures=pick_figures(1_000_000), per_ms=st.integers(100, 366 * 86_400_000))
def test_the_pace_leaves_room_for_late_starts(
    limits: Limits, figures: tuple[int, int], per_ms: int
) -> None:
    """Starts in a window come from slots in one that is longer by the time that they may be late:
    at most limit + burst."""
    starts, burst = figures
    pace = "select spacing, late from rota.limit_pace(%s, %s * interval '1 ms', %s)"
    [(spacing, late)] = limits.rows(pace, starts, per_ms, burst)
    per = per_ms * 1_000
    assert spacing * (starts - burst + 1) >= per
    assert per + late <= spacing * (starts + 1)
    assert late >= min(per // 10, 250_000) * 9 // 10


@rule("M61", "M62")
def test_the_urgent_pass_those_that_wait_and_an_ordinary_newcomer_does_not(limits: Limits) -> None:
    limits.declare()
    limits.hand.priorities = [0, 5, 9, 50]
    low, high, middle = (limits.insert(priority=priority)[0] for priority in (0, 9, 5))
    limits.insert(queue="third")  # due for long when it is claimed, and yet behind those that wait
    assert list(limits.claim()) == [high]
    limits.wait(6)
    limits.hand.queues = ["other"]  # of a worker that cannot take the others
    [new] = limits.insert(queue="other")
    assert limits.claim() == {}
    [urgent] = limits.insert(queue="other", priority=50)
    assert list(limits.claim()) == [urgent]
    limits.hand.queues = ["default", "other"]
    limits.wait(6)
    assert list(limits.claim()) == [middle]
    limits.wait(6)
    assert list(limits.claim()) == [low]
    limits.wait(6)
    limits.hand.queues = ["default", "other", "third"]
    assert list(limits.claim()) == [new]


@rule("M61", "M62")
def test_a_job_that_waits_for_its_limit_holds_no_slot_of_a_cap(limits: Limits) -> None:
    limits.declare()
    cap_queue(limits.connection, 1)
    _, second = limits.insert(2)
    [other] = limits.insert(job_type="u")
    end(limits.hand, limits.hand.claim().jobs[0])
    assert limits.claim() == {}, "the second one got the slot and no start"
    limits.hand.run(ops.sweep_rooms("", 1_000))
    [job] = limits.hand.claim().jobs
    assert job.id == other
    assert limits.turns() == [6.0]
    limits.wait(6)
    assert limits.claim() == {}, "now the slot is taken"
    end(limits.hand, job)
    assert list(limits.claim()) == [second]


@rule("M62")
def test_jobs_that_have_waited_and_newcomers_never_get_one_slot(limits: Limits) -> None:
    limits.declare(starts=1_000, per_s=1)
    limits.hand.priorities = [0, -1]
    limits.insert(300, priority=-1)
    slots: Counter[datetime] = Counter()
    for _ in range(60):
        for in_s in limits.claim(100).values():
            slots[limits.now + timedelta(seconds=in_s)] += 1
        limits.wait(0.005)
        limits.insert(20)
    assert max(slots.values()) == 1 and len(slots) > 300


@rule("M62")
def test_jobs_that_nobody_takes_or_that_are_gone_hold_back_no_others(limits: Limits) -> None:
    limits.declare()
    limits.hand.queues, limits.hand.priorities = ["default", "b"], [9, 0]
    limits.insert(1_000)
    limits.insert(1_000, priority=9)
    limits.claim(), limits.claim()
    limits.connection.execute("delete from rota.job where status = 'queued' and priority = 9")
    limits.connection.execute("select rota.queue_pause('default')")
    limits.wait(60)
    begun: list[int] = []
    jobs = limits.insert(5, queue="b")
    for _ in range(40):
        begun += limits.claim()
        limits.replan()
        limits.wait(1)
    assert begun == jobs


@rule("M62")
def test_a_transaction_that_locks_a_key_holds_up_no_other(limits: Limits, database: str) -> None:
    limits.declare(keyed=True)
    [held], [free] = limits.insert(key="held"), limits.insert(key="free")
    [plain] = limits.insert(job_type="u")
    with psycopg.connect(database) as other:
        other.execute("select rota.worker_limit_delay('smtp', 'held', '0 s')")
        assert list(limits.claim()) == [free, plain]
        assert limits.turns() == [1.0]
    limits.wait(1)
    assert list(limits.claim()) == [held]
    with psycopg.connect(database) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED only"):
            other.execute("select rota.worker_limit_take('smtp', 'held')")


@rule("M62")
def test_a_delay_gives_no_start_before_and_no_burst_after(limits: Limits) -> None:
    limits.declare(**SECOND)
    jobs = limits.insert(3)
    assert list(limits.claim(1)) == jobs[:1]
    limits.delay(5.0)
    limits.delay(1.0)  # takes nothing back
    for s, due in ((0, []), (4.9, []), (0.1, jobs[1:2]), (0.9, []), (0.1, jobs[2:])):
        limits.wait(s)
        assert list(limits.claim()) == due


@rule("M62")
def test_a_claim_writes_each_key_once_and_reads_little(limits: Limits, database: str) -> None:
    limits.declare(starts=1_000_000, burst=10_000)
    with psycopg.connect(database) as old:  # its snapshot keeps all versions
        old.execute("begin isolation level repeatable read")
        old.execute("select from rota.rate_limit_key")
        for _ in range(100):
            limits.insert(5)
            assert len(limits.claim()) == 5
        assert limits.value("select version from rota.rate_limit_key") == 100
        plan = limits.value(
            "explain (analyze, buffers, format json) select * from rota.rate_limit_key k "
            "where k.name = 'smtp' and k.key = '' "
            "order by k.name desc, k.key desc, k.version desc limit 1"
        )[0]["Plan"]
    assert plan["Plans"][0]["Scan Direction"] == "Backward"
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 6
    assert limits.value("select count(*) from rota.rate_limit_key") == 1


@rule("M13")
def test_keys_that_were_not_used_for_a_day_are_forgotten(limits: Limits) -> None:
    limits.declare(keyed=True)
    limits.take(key="old")
    limits.wait(25 * 3_600)
    limits.take(key="new")
    assert limits.hand.run(ops.forget_rows("limits", 100)) == 1
    assert limits.value("select key from rota.rate_limit_key") == "new"


# What stands in the way of one job or key, and not of others


@rule("M62")
def test_a_worker_in_sql_takes_what_waits_and_passes_no_ready_job(limits: Limits) -> None:
    limits.declare(starts=1, per_s=2)
    limits.insert(3)
    plain = insert(limits.connection, 40, job_type="u")
    seen, got = "{}", []
    for _ in range(20):
        claim = "select id, seen from rota.claim('default', '{t,u}', 'sql', 5, 'r', %s::jsonb)"
        for id_, after in limits.rows(claim, seen):
            got += [id_] if id_ else []
            seen = json.dumps(after)
        limits.wait(0.5)
    assert set(plain) <= set(got) and len(got) == 43


@rule("M62")
def test_who_locks_a_key_or_the_next_job_of_it_holds_up_no_others(
    limits: Limits, database: str
) -> None:
    limits.declare(**SECOND)
    jobs = limits.insert(100)
    limits.claim()
    limits.wait(2)
    plain = insert(limits.connection, 10, job_type="u")
    with psycopg.connect(database) as other:
        other.execute("select rota.worker_limit_delay('smtp', null, '0 seconds')")
        assert {*limits.claim(10), *limits.claim(10)} == set(plain)
        other.rollback()
    with psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [jobs[10]])
        limits.wait(1)
        assert list(limits.claim(10)) == jobs[11:13]


@rule("M62")
def test_a_job_whose_provider_wants_no_more_comes_back_after_the_delay_is_written(
    limits: Limits, database: str
) -> None:
    limits.declare(**SECOND)
    limits.insert(2)
    how = Transition("back", Status.QUEUED, delay_s=5, waits_for="limit smtp", delays_limit=True)

    def leave(job: Job, ended_s_ago: float) -> ops.Written | ops.Refused:
        ending = ops.Ending(job, how, 0.1, ended_s_ago=ended_s_ago)
        return limits.hand.run(ops.leave([ending], "1"))[job.id]

    first, second = limits.hand.claim().jobs
    with psycopg.connect(database) as other:
        other.execute("select rota.worker_limit_delay('smtp', null, '0 s')")
        assert leave(first, 0) == LIMIT_LOCKED
        assert isinstance(leave(first, 5), ops.Written), "but not after a while"
    leave(second, 2)
    for s, is_free in ((2.9, False), (0.1, True)):
        limits.wait(s)
        assert limits.take() is is_free


@rule("M62")
def test_a_start_counts_from_the_moment_at_which_it_was_given(limits: Limits) -> None:
    limits.declare()
    [job] = limits.insert()
    limits.connection.execute(
        "create or replace function rota.moment() returns timestamptz language sql "
        "as $$select rota.clock() + interval '2 s'$$"  # it has waited for a lock
    )
    assert limits.hand.claim().starts[job].late_s == 2 + 0.9 * 6
    assert limits.value("select tat - rota.clock() = '8 s' from rota.rate_limit_key")
