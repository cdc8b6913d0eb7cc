"""Rate limits whose figures change, and the jobs that come forward then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.store import ops
from tests.store.limits import Limits
from tests.store.work import Connection, Hand, insert
from tests.support.rules import rule


@pytest.fixture
def limits(connection: Connection) -> Limits:
    return Limits(connection).begin()


@rule("M62")
def test_a_limit_that_was_raised_brings_jobs_forward_in_their_order(limits: Limits) -> None:
    limits.declare()
    limits.insert(1_101)
    assert len(limits.claim()) == 1
    assert limits.replan() == (1, 0), "its slots are taken until 6 s"
    limits.connection.execute("select rota.limit_set('smtp', 600)")
    turns = limits.turns()
    assert turns[999] == pytest.approx(100, abs=10)
    assert turns[1_000] > 5_000  # the next pass


@rule("M62", "M87")
def test_a_slow_limit_that_was_raised_gives_starts_at_once(limits: Limits) -> None:
    for how in ("call", "row", "code"):
        limits.connection.execute("truncate rota.job, rota.rate_limit, rota.rate_limit_key")
        limits.declare(starts=2, burst=1, per_s=86_400)
        first, *jobs = limits.insert(6)
        assert list(limits.claim()) == [first]
        if how == "call":
            limits.connection.execute("select rota.limit_set('smtp', 3600, interval '1 h', 100)")
        elif how == "row":
            limits.connection.execute("update rota.rate_limit set starts = 86400, burst = 100")
            limits.replan()
        else:
            limits.declare(starts=86_400, burst=100, per_s=86_400)
            limits.replan()
        assert list(limits.claim()) == jobs, how
        assert limits.take(94), how
        assert not limits.take(), "the starts from before count, by the pace of now"


@rule("M62")
def test_a_limit_that_was_lowered_and_raised_again_forgets_no_start(limits: Limits) -> None:
    limits.declare(starts=10, burst=10, per_s=600)
    assert limits.take(10)
    for starts in (1, 10):
        limits.connection.execute("select rota.limit_set('smtp', %s, null, %s)", [starts, starts])
        assert not limits.take(1)


@rule("M62")
def test_a_raised_limit_gives_its_starts_though_no_job_waits(limits: Limits) -> None:
    limits.freeze(now := datetime(2026, 1, 1, tzinfo=UTC))
    limits.declare(starts=1, burst=1, per_s=3_600)
    assert limits.take()
    limits.freeze(now := now + timedelta(minutes=30))
    limits.connection.execute("select rota.limit_set('smtp', 3600)")
    assert not limits.take()
    for _ in range(10):
        limits.freeze(now := now + timedelta(seconds=2))
        assert limits.take()


@rule("M62")
def test_a_limit_stands_no_longer_still_because_the_clock_was_set_back(limits: Limits) -> None:
    limits.freeze(now := datetime(2026, 1, 1, tzinfo=UTC))
    limits.declare(starts=10, burst=1)
    assert limits.take()
    limits.delay(8.0)
    limits.freeze(now := now - timedelta(hours=1))
    assert not limits.take()
    limits.freeze(now := now + timedelta(seconds=7))
    assert not limits.take()
    limits.freeze(now + timedelta(seconds=1))
    assert limits.take()


@rule("M62")
def test_a_statement_that_began_earlier_and_came_later_takes_no_start_too_early(
    limits: Limits,
) -> None:
    limits.declare()
    assert limits.take()
    for s, is_free in ((-1, False), (6, False), (1, True)):
        limits.wait(s)
        assert limits.take() is is_free


@rule("M62")
@pytest.mark.parametrize("starts", [3, 6_000])
def test_a_limit_that_was_changed_keeps_the_delay_of_a_handler(limits: Limits, starts: int) -> None:
    limits.declare(starts=60, burst=2, per_s=600)
    limits.delay(8.0)
    limits.wait(7)
    limits.connection.execute("select rota.limit_set('smtp', %s)", [starts])
    assert not limits.take()
    limits.wait(1)
    assert limits.take()


@rule("M62")
def test_all_keys_of_a_limit_that_was_raised_come_forward(limits: Limits) -> None:
    limits.declare(starts=2, burst=1, per_s=86_400, keyed=True)
    insert(limits.connection, 1_500)
    limits.connection.execute(
        "update rota.job set run_at = rota.clock() + interval '1 day', waits_for = 'limit smtp k' "
        "|| id"
    )
    insert(limits.connection, 1, waits_for="limit another 1")
    limits.connection.execute("select rota.limit_set('smtp', 1000000)")
    waiting, after = limits.hand.run(ops.replan_limits(1_000, None))
    assert (waiting, limits.hand.run(ops.replan_limits(1_000, after))) == (1_000, (501, None))
    due = "select count(*) from rota.job where run_at <= rota.clock() and waits_for ~ 'smtp'"
    assert limits.value(due) == 1_500


@rule("M62")
def test_a_pass_brings_jobs_forward_before_which_others_are_gone_and_locks_no_others(
    limits: Limits,
) -> None:
    limits.declare(starts=109, burst=8)
    insert(limits.connection, 10, waits_for="limit smtp")
    limits.connection.execute("update rota.job set run_at = rota.clock() + interval '1 h'")
    assert limits.replan() == (1, 10)
    locked_by = "select array_agg(xmax::text order by id) from rota.job"
    before = limits.value(locked_by)
    assert limits.replan() == (1, 0)
    assert limits.value(locked_by) == before
    assert limits.value("select count(*) from rota.job where run_at <= rota.clock()") == 8
    limits.connection.execute("delete from rota.job")
    assert limits.hand.run(ops.replan_limits(1_000, None)) == (0, None)


@rule("M62")
def test_a_change_by_a_person_stands_until_code_declares_something_else(limits: Limits) -> None:
    limits.declare()
    limits.connection.execute("update rota.rate_limit set starts = 5, burst = 2")
    limits.declare()
    assert limits.value("select starts from rota.rate_limit") == 5
    limits.declare(starts=70)
    row = limits.connection.execute("select starts, burst, changed_by from rota.rate_limit")
    assert row.fetchone() == (70, 1, "release r1")


def _start_worker(limits: Limits, release: str, **changes: Any) -> None:
    """A worker of a release starts, as a worker does."""
    limits.hand.run(ops.declare_schedules("[]", release, [], is_deploy=False))
    limits.declare(release=release, is_deploy=False, **changes)
    Hand(limits.connection, name=release, release=release).send_heartbeat()


@rule("M62", "M87")
def test_of_two_releases_side_by_side_the_older_one_changes_no_limit(limits: Limits) -> None:
    starts = "select array_agg(starts order by name) from rota.rate_limit"
    _start_worker(limits, "old", starts=50)
    _start_worker(limits, "new", starts=200)
    limits.connection.execute("select rota.limit_set('smtp', 70)")
    _start_worker(limits, "old", starts=50)
    _start_worker(limits, "new", starts=200)
    assert limits.value(starts) == [70], "what a person has set stands"
    _start_worker(limits, "old", name="another", starts=5, burst=1)
    assert limits.value(starts) == [5, 70], "one that was not there is added"
