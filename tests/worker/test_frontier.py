"""The promise of the frontier: whatever becomes visible is found, in time, and looking for it stays
cheap."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.model.job import Job
from rota.runtime.clock import STALL
from rota.store.ops.claim import Claimed, News
from rota.worker.frontier import (
    BEGINNING,
    DEPTHS_S,
    ENDED_PERIOD_S,
    EVERYTHING_S,
    PERIODS_S,
    SHARE,
    ClaimRequest,
    ClaimTiming,
    Frontier,
    Frontiers,
    Key,
    UnderWay,
)
from rota.worker.slots import SlotGroup
from tests.support.job import make_job
from tests.support.rules import rule

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(s: float) -> datetime:
    return T0 + timedelta(seconds=s)


@dataclass
class Look:
    """One claim of the simulation."""

    began_s: float
    took_s: float
    depth_s: float
    idle: bool
    """Whether the claim before it came to the end."""


@dataclass
class Table:
    """One (queue, priority) and the one worker that claims from it, as `job_claim` would. Times are
    seconds."""

    jobs: list[tuple[float, float]]
    """(run_at, when its INSERT commits)"""
    limit: int = 1000
    workers: int = 1
    frontier: Frontier = field(default_factory=Frontier)
    found_s: dict[int, float] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    under_way: UnderWay | None = None
    """The worker learns from its claims which transactions are under way."""

    def __post_init__(self) -> None:
        self.keys = {id_: (at(run_at), id_) for id_, (run_at, _) in enumerate(self.jobs, 1)}

    def key(self, id_: int) -> Key:
        return self.keys[id_]

    def in_sight(self, now_s: float, depth_s: float) -> list[int]:
        """Jobs that a claim would return if it had no limit, in its order."""
        back_to = at(now_s) - timedelta(seconds=depth_s)
        after = self.frontier.key if self.frontier.key[0] <= back_to else (back_to, 0)
        due = [
            id_ for id_ in self.keys if id_ not in self.found_s and max(self.jobs[id_ - 1]) <= now_s
        ]
        return sorted((i for i in due if self.key(i) > after), key=self.key)

    def claim(self, now_s: float, took_s: float) -> list[int]:
        """Claim; return what was in sight beyond the limit."""
        depth_s = self.frontier.depth_s(now_s)
        self.looks.append(Look(now_s, took_s, depth_s, self.frontier.reached_end))
        seen = self.in_sight(now_s, depth_s)
        taken, left = seen[: self.limit], seen[self.limit :]
        self.found_s |= dict.fromkeys(taken, now_s)
        last = self.key(taken[-1]) if taken else None
        to_the_end = len(taken) < self.limit
        timing = ClaimTiming(now_s + took_s, took_s, at(now_s), self.workers)
        self.frontier.advance(timing, depth_s, last, to_the_end=to_the_end)
        if self.under_way is not None:
            since = self.under_way.learn(self.snapshot(now_s), now_s)
            if since is not None:
                self.frontier.look_back_for_ended(since, now_s + took_s)
        return left

    def snapshot(self, now_s: float) -> str:
        """What pg_current_snapshot() says: each job has a transaction of its own, with its id."""
        numbers = [
            str(id_)
            for id_, (run_at, visible_s) in enumerate(self.jobs, 1)
            if run_at <= now_s < visible_s
        ]
        return f"{min(numbers, default='99')}:99:{','.join(numbers)}"


instants = st.integers(0, 20_000).map(lambda ms: ms / 1000)
lateness = st.one_of(
    st.just(0.0), st.integers(0, 1500).map(lambda ms: ms / 1000), st.integers(0, 90).map(float)
)
jobs = st.lists(st.tuples(instants, lateness), min_size=1, max_size=25).map(
    lambda given: [(run_at, run_at + late) for run_at, late in given]
)
tenths = st.integers(1, 30).map(lambda number: number / 10)
gaps = st.lists(st.sampled_from([0.02, 0.05, 0.3, 0.8]), min_size=1, max_size=6)
durations = st.sampled_from([0.0005, 0.003, 0.05])


def overdue_s(level: int, took_s: float, workers: int) -> float:
    """How long a depth may stay without a look, but for the pause between two claims."""
    return max(PERIODS_S[level], took_s * workers / SHARE)


def run(table: Table, gaps: list[float], took_s: float, until_s: float) -> None:
    now_s, turn = 0.0, 0
    while now_s < until_s and len(table.found_s) < len(table.jobs):
        table.claim(now_s, took_s)
        now_s += took_s + gaps[turn % len(gaps)]
        turn += 1


@rule("M2", "M14")
@given(jobs, gaps, durations, st.integers(1, 4))
@example([(0.0, 1.0)], [0.02], 0.0005, 1)
def test_a_job_that_becomes_visible_behind_is_found_by_the_first_look_that_is_deep_enough(
    jobs: list[tuple[float, float]], gaps: list[float], took_s: float, workers: int
) -> None:
    table = Table(jobs, workers=workers)
    run(table, gaps, took_s, 200)
    slack_s = max(gaps) + 2 * took_s
    for id_, (run_at, visible_s) in enumerate(jobs, 1):
        within_s = [
            wait_s
            for level, depth_s in enumerate(DEPTHS_S)
            if depth_s
            > (wait_s := overdue_s(level, took_s, workers) + slack_s) + visible_s - run_at
        ]
        assert table.found_s[id_] <= visible_s + min(within_s) + 1e-6, (
            f"job {id_}, due {run_at}, visible {visible_s}"
        )
        deep_enough = [
            look.began_s
            for look in table.looks
            if look.began_s >= visible_s and look.depth_s > look.began_s - run_at
        ]
        assert table.found_s[id_] <= min(deep_enough, default=math.inf)


@rule("M2", "M88")
@settings(max_examples=40)
@given(jobs, gaps, durations, st.integers(1, 5))
def test_every_visible_due_job_is_found_also_by_claims_that_take_few_at_a_time(
    jobs: list[tuple[float, float]], gaps: list[float], took_s: float, limit: int
) -> None:
    table = Table(jobs, limit=limit)
    claims = math.ceil(len(jobs) / limit) + 2
    bound_s = overdue_s(-1, took_s, 1) + claims * (max(gaps) + took_s)
    run(table, gaps, took_s, 120 + bound_s)
    assert all(
        table.found_s[id_] <= visible_s + bound_s for id_, (_, visible_s) in enumerate(jobs, 1)
    )


@rule("M2")
@settings(max_examples=40)
@given(jobs, gaps, durations, st.integers(1, 5))
@example([(0.0, 0.021), (0.0, 0.021)], [0.02], 0.0005, 1)
def test_a_claim_that_was_cut_short_never_moves_the_frontier_past_what_it_did_not_see(
    jobs: list[tuple[float, float]], gaps: list[float], took_s: float, limit: int
) -> None:
    table = Table(jobs, limit=limit)
    now_s = 0.0
    for turn in range(400):
        left = table.claim(now_s, took_s)
        now_s += took_s + gaps[turn % len(gaps)]
        assert set(left) <= set(table.in_sight(now_s, 0.0)), (
            "the next claim, however shallow, takes up there"
        )


@rule("M2")
@settings(max_examples=25)
@given(
    st.lists(st.tuples(tenths, tenths), min_size=1, max_size=25),
    st.sampled_from([0.001, 0.02]),
    st.sampled_from([0.003, 0.025]),
    st.integers(1, 8),
)
@example([(1.0, 2.0)], 0.001, 0.025, 8)
def test_a_late_commit_is_found_within_half_a_second_however_many_workers_share_the_budget(
    late: list[tuple[float, float]], gap_s: float, took_s: float, workers: int
) -> None:
    jobs = [(run_at, run_at + late_s) for run_at, late_s in late]
    table = Table([*jobs, (500.0, 500.0)], workers=workers, under_way=UnderWay())
    run(table, [gap_s], took_s, 8)
    # Seen to be gone by one claim, looked for by the next.
    within_s = ENDED_PERIOD_S[1] + 3 * (gap_s + took_s)
    for id_, (_, visible_s) in enumerate(jobs, 1):
        assert table.found_s[id_] <= visible_s + within_s
    searches = [look for look in table.looks if look.depth_s not in (0.0, *DEPTHS_S)]
    for earlier, later in pairwise(searches):
        assert later.began_s - earlier.began_s >= ENDED_PERIOD_S[0]
    assert len(searches) <= 2 * len(jobs), "without transactions that end there is nothing to do"


def test_a_transaction_counts_as_under_way_from_the_claim_before_it_was_seen() -> None:
    under_way = UnderWay()
    assert under_way.learn("5:5:", 1.0) is None
    assert under_way.learn("7:9:7,8", 2.0) is None
    assert under_way.learn("7:12:7,8,11", 3.0) is None
    assert under_way.learn("8:12:8", 4.0) == 1.0
    assert under_way.learn("13:13:", 5.0) == 1.0
    assert under_way.learn("13:13:", 6.0) is None


def test_a_transaction_from_before_the_worker_hides_no_other_that_ends_with_it() -> None:
    under_way = UnderWay()
    under_way.learn("7:8:7", 1.0)
    under_way.learn("7:10:7,9", 2.0)
    assert under_way.learn("10:10:", 3.0) == 1.0


def test_a_transaction_that_a_worker_found_at_its_start_is_left_to_the_deeper_looks() -> None:
    table = Table([(500.0, 500.0)], under_way=UnderWay())
    table.jobs.append((-1.0, 0.5))
    table.keys[2] = (at(-1.0), 2)
    run(table, [0.02], 0.003, 0.7)
    assert all(look.depth_s in (0.0, *DEPTHS_S) for look in table.looks)


@rule("M14")
@settings(max_examples=40)
@given(jobs, gaps, durations, st.integers(1, 4))
@example([(0.0, 0.0)], [0.02], 0.003, 1)
def test_looks_of_one_depth_keep_their_period_and_their_share_of_a_connection(
    jobs: list[tuple[float, float]], gaps: list[float], took_s: float, workers: int
) -> None:
    table = Table([*jobs, (500.0, 500.0)], workers=workers)
    run(table, gaps, took_s, 40)
    for level, depth_s in enumerate(DEPTHS_S):
        # The shallowest is part of every claim after one that came to the end: it then passes over
        # nothing.
        looks = [
            look
            for look in table.looks
            if look.depth_s == depth_s and not (level == 0 and look.idle)
        ]
        for earlier, later in pairwise(looks):
            apart_s = later.began_s - (earlier.began_s + earlier.took_s)
            assert apart_s >= overdue_s(level, took_s, workers) - 1e-9
        assert sum(look.took_s for look in looks[1:]) * workers <= SHARE * 40 + 1e-9


@rule("M2", "M14")
def test_one_slow_claim_puts_off_a_depth_for_little_and_a_slow_table_for_its_share() -> None:
    def next_look_s(took_s: float) -> float:
        table.frontier.search_everything()
        table.claim(0.0, took_s)
        return table.frontier.due_at[-1] - took_s

    table = Table([(1.0, 1.0)])
    assert next_look_s(0.1) == pytest.approx(0.1 / SHARE)
    assert next_look_s(0.01) == pytest.approx(0.01 / SHARE)
    assert next_look_s(5.0) == pytest.approx(STALL * 0.01 / SHARE)
    for _ in range(5):
        next_look_s(5.0)
    assert next_look_s(5.0) == pytest.approx(5.0 / SHARE)


@rule("M14")
@settings(max_examples=40)
@given(jobs, gaps, durations)
def test_a_claim_that_came_to_the_end_leaves_everything_before_its_start_behind(
    jobs: list[tuple[float, float]], gaps: list[float], took_s: float
) -> None:
    table = Table(jobs)
    now_s, turn = 0.0, 0
    while now_s < 10:
        before = table.frontier.key
        table.claim(now_s, took_s)
        assert table.frontier.key == max(before, (at(now_s), 0))
        now_s += took_s + gaps[turn % len(gaps)]
        turn += 1


@rule("M83")
@given(instants, instants, st.integers(1, 5))
def test_after_a_request_to_look_back_a_claim_of_any_depth_sees_what_is_due_since_then(
    run_at: float, late_s: float, limit: int
) -> None:
    now_s = run_at + late_s
    table = Table([(run_at, now_s)], limit=limit)
    table.claim(now_s - 0.001, 0.0005)
    table.frontier.look_back(at(run_at))
    assert table.in_sight(now_s, 0.0) == [1]


def test_a_look_at_everything_reaches_the_oldest_run_at_that_a_row_may_have() -> None:
    assert datetime.now(UTC) - timedelta(seconds=EVERYTHING_S / 2) < datetime(
        1970, 1, 1, tzinfo=UTC
    )


def test_a_fresh_frontier_looks_at_everything_first() -> None:
    frontier = Frontier()
    assert frontier.key == BEGINNING
    assert frontier.depth_s(0.0) == EVERYTHING_S


@rule("M80")
def test_a_drain_can_have_a_look_at_everything_before_its_budget_allows() -> None:
    table = Table([(1.0, 1.0)])
    table.claim(10.0, 5.0)
    assert table.frontier.depth_s(16.0) < EVERYTHING_S
    table.frontier.search_everything()
    assert table.frontier.depth_s(16.0) == EVERYTHING_S


def test_a_look_back_that_found_more_than_it_could_take_says_so_and_goes_on_from_there() -> None:
    table = Table([(1.0, 60.0), (2.0, 60.0), (3.0, 60.0)], limit=2)
    table.claim(50.0, 0.001)
    cut = ClaimTiming(60.001, 0.001, at(60), 1)
    assert table.frontier.advance(cut, EVERYTHING_S, table.key(2), to_the_end=False)
    assert table.frontier.key == table.key(2)
    last = ClaimTiming(60.002, 0.001, at(60.001), 1)
    assert not table.frontier.advance(last, 0.0, table.key(3), to_the_end=True)


def job(id_: int, priority: int, queue: str = "a") -> Job:
    return make_job(id_, priority=priority, queue=queue, run_at=at(id_))


def claim_keys(
    group: SlotGroup, jobs: list[Job]
) -> tuple[ClaimRequest, dict[tuple[str, int], Key]]:
    """What is asked for a group, and the frontiers after a claim that found these jobs."""
    frontiers = Frontiers(group.queues)
    for queue in group.queues:
        for priority in (-1, 0, 1, 50):
            frontiers.add(queue, priority)
    request = frontiers.make_request([group], 0, 100.0)
    claimed = Claimed(at(100), "1:1:", jobs, News())
    frontiers.learn(request, request.sort(jobs), claimed, ClaimTiming(100.1, 0.1, at(100), 1))
    branches = frontiers.make_request([SlotGroup(group.queues, 1, 0.0)], 0, 101.0).branches
    keys = zip(branches.after_run_at, branches.after_id, strict=True)
    return request, dict(
        zip(zip(branches.queues, branches.priorities, strict=True), keys, strict=True)
    )


END = (at(100), 0)


@rule("M61", "M80")
def test_a_claim_for_urgent_jobs_alone_moves_no_other_frontier_and_does_not_cover_everything() -> (
    None
):
    group = SlotGroup(("a", "b"), 10, 0.0, urgent_slots=2)
    group.running = 8
    request, keys = claim_keys(group, [])
    assert request.is_for_urgent and not request.covers_everything(["a", "b"])
    assert keys == {
        (queue, priority): END if priority > 0 else BEGINNING
        for queue, priority in product("ab", (-1, 0, 1, 50))
    }


@rule("M61", "M80")
def test_a_claim_for_all_jobs_of_a_group_that_found_none_covers_everything() -> None:
    request, keys = claim_keys(SlotGroup(("a", "b"), 10, 0.0, urgent_slots=2), [])
    assert request.covers_everything(["a", "b"])
    assert set(keys.values()) == {END}


@rule("M2", "M61")
def test_where_the_ordinary_room_was_used_up_only_urgent_frontiers_come_to_the_end() -> None:
    group = SlotGroup(("a", "b"), 3, 0.0, urgent_slots=1)
    _, keys = claim_keys(group, [job(1, 0), job(2, 0)])
    assert {at for at, key in keys.items() if key == END} == set(product("ab", (1, 50)))
    assert keys["a", 0] == (at(2), 2)
    assert keys["a", -1] == keys["b", 0] == keys["b", -1] == BEGINNING


@rule("M2", "M61")
def test_where_urgent_jobs_used_up_all_room_no_ordinary_frontier_moves() -> None:
    group = SlotGroup(("a", "b"), 3, 0.0, urgent_slots=1)
    _, keys = claim_keys(group, [job(1, 50), job(2, 1), job(3, 1)])
    assert keys["a", 50] == END
    assert keys["a", 1] == (at(3), 3)
    assert {key for place, key in keys.items() if place not in (("a", 50), ("a", 1))} == {BEGINNING}
