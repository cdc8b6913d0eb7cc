"""The figures per hour: each row counts once, whatever is killed; percentiles are exact to 10 %."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store import ops
from rota.store.ops import Stats
from tests.store.cost import count_blocks
from tests.store.planned import set_clock
from tests.store.test_search import Search
from tests.store.work import FAIL, GIVE_UP, Hand, insert
from tests.support.history import fill
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

HOUR = datetime(2026, 1, 14, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def hand(shared: Connection) -> Hand:
    """Return a worker that rolls up, on a day with no figures yet."""
    return begin_the_day(shared)


def begin_the_day(connection: Connection) -> Hand:
    connection.execute(
        "select rota.partition_ensure(t.name, '2026-01-14'::date) from unnest(array['job_history', "
        "'attempt']) t(name)"
    )
    connection.execute("update rota.stat_rollup set complete_to = %s", [HOUR])
    return Hand(connection)


def ended(
    connection: Connection,
    at: datetime,
    count: int = 1,
    *,
    status: str = "succeeded",
    job_type: str = "t",
    queue: str = "default",
    attempts: int = 1,
    ran: list[float] | None = None,
) -> None:
    """Insert jobs that have ended, as a finish appends them.

    They are a number that ran for a second, or one for each time; each waited as long as it ran.
    """
    connection.execute(
        "insert into rota.job_history (id, job_type, queue, payload, status, priority, attempts, "
        "claims, created_at, updated_at, run_at, started_at, "
        "finished_at) select nextval('rota.job_id_seq'), %(job_type)s, %(queue)s, '{}', "
        "%(status)s, 0, %(attempts)s, 1, %(at)s, %(at)s, "
        "%(at)s - 2 * s * interval '1 s', %(at)s - s * interval '1 s', %(at)s from "
        "unnest(%(ran)s::float8[]) s",
        {
            "at": at,
            "status": status,
            "job_type": job_type,
            "queue": queue,
            "attempts": attempts,
            "ran": ran or [1.0] * count,
        },
    )


def roll_up(hand: Hand, at: datetime) -> int:
    """Count all that may be counted at an instant; return how many turns that took."""
    set_clock(hand.connection, at)
    turns = 1
    while hand.run(ops.roll_up_stats()):
        turns += 1
    return turns


def figures(hand: Hand, hours: int = 24) -> Stats:
    return hand.run(ops.stats(hours, None, None))


def rolled_up(connection: Connection) -> int:
    """Return how many successes the table of figures has."""
    [(count,)] = connection.execute("select coalesce(sum(succeeded), 0)::int from rota.stat_hour")
    return int(count)


@rule("M85")
def test_what_ended_is_counted_per_type_queue_and_hour(shared: Connection, hand: Hand) -> None:
    ended(shared, HOUR + 5 * MINUTE, 3)
    ended(shared, HOUR + 5 * MINUTE, 2, attempts=2)
    ended(shared, HOUR + 6 * MINUTE, status="cancelled")
    ended(shared, HOUR + 6 * MINUTE, 4, queue="other")
    ended(shared, HOUR + 7 * MINUTE, 5, job_type="u")
    ended(shared, HOUR + 65 * MINUTE, 7)
    assert roll_up(hand, HOUR + 72 * MINUTE) == 3
    rows = shared.execute(
        "select hour, job_type, queue, succeeded, succeeded_late, cancelled from rota.stat_hour "
        "order by 1, 2, 3"
    ).fetchall()
    assert rows == [
        (HOUR, "t", "default", 5, 2, 1),
        (HOUR, "t", "other", 4, 0, 0),
        (HOUR, "u", "default", 5, 0, 0),
        (HOUR + 60 * MINUTE, "t", "default", 7, 0, 0),
    ]
    stats = figures(hand)
    assert [
        (row.job_type, row.succeeded, row.succeeded_late, row.cancelled) for row in stats.types
    ] == [("t", 16, 2, 1), ("u", 5, 0, 0)]
    assert [(row.job_type, row.hour, row.succeeded) for row in stats.hours] == [
        ("t", HOUR + 60 * MINUTE, 7),
        ("t", HOUR, 9),
        ("u", HOUR, 5),
    ]
    assert stats.complete_to == HOUR + 71.5 * MINUTE
    assert [row.succeeded for row in figures(hand, hours=1).types] == [7]
    assert [row.job_type for row in hand.run(ops.stats(24, "u", None)).types] == ["u"]
    assert [row.succeeded for row in hand.run(ops.stats(24, None, "other")).types] == [4]


@rule("M85")
def test_what_ended_is_counted_once_within_a_minute_and_readers_say_up_to_when(
    shared: Connection, hand: Hand
) -> None:
    ended(shared, HOUR + timedelta(seconds=29.9))
    ended(shared, HOUR + timedelta(seconds=30))
    seen = []
    for seconds in (59.9, 60, 61, 89, 90, 91, 400):
        roll_up(hand, HOUR + timedelta(seconds=seconds))
        until = figures(hand).complete_to - HOUR
        seen.append((rolled_up(shared), until.total_seconds()))
    assert seen == [(0, 0), (1, 30), (1, 30), (1, 30), (2, 60), (2, 60), (2, 370)]
    roll_up(hand, HOUR + 70 * MINUTE)
    [row] = figures(hand).types
    assert row.succeeded == 2
    assert row.ran_p50_s == pytest.approx(1, rel=0.1)


@rule("M85")
def test_one_folds_at_a_time_and_one_that_is_killed_leaves_it_to_the_next(
    connection: Connection, second: Connection
) -> None:
    hand = begin_the_day(connection)
    ended(connection, HOUR + MINUTE, 3)
    set_clock(connection, HOUR + 5 * MINUTE)
    connection.execute("set lock_timeout = '2s'")
    other = Hand(second, "other")
    with second.transaction(force_rollback=True):
        assert other.run(ops.roll_up_stats()) is False
        assert rolled_up(second) == 3
        assert hand.run(ops.roll_up_stats()) is False, "it does not wait"
        assert rolled_up(connection) == 0
    roll_up(hand, HOUR + 10 * MINUTE)
    roll_up(other, HOUR + 10 * MINUTE)
    assert [row.succeeded for row in figures(hand).types] == [3]
    assert connection.execute("select complete_to from rota.stat_rollup").fetchall() == [
        (HOUR + 9.5 * MINUTE,)
    ]


@rule("M85")
@pytest.mark.parametrize("then", [(66, 67, 130), (130,)])
def test_what_is_committed_late_is_counted_soon_after_its_hour(
    connection: Connection, second: Connection, then: tuple[int, ...]
) -> None:
    last = HOUR + timedelta(hours=14)
    hand = begin_the_day(connection)
    connection.execute("select rota.partition_ensure('job_history', '2026-01-15'::date)")
    ended(connection, last + 58 * MINUTE, 3)
    with second.transaction():
        ended(second, last + 59 * MINUTE)
        roll_up(hand, last + 63 * MINUTE)
        ended(connection, last + 64 * MINUTE, 5)
    assert rolled_up(connection) == 3
    roll_up(hand, last + 65 * MINUTE)
    assert rolled_up(connection) == 8
    for minutes in then:
        roll_up(hand, last + minutes * MINUTE)
        assert rolled_up(connection) == 9
    assert [row.succeeded for row in figures(hand).hours] == [5, 4]


@rule("M85")
def test_a_row_in_room_of_an_older_block_is_counted_when_its_hour_is_over(
    shared: Connection, hand: Hand
) -> None:
    ended(shared, HOUR - 50 * MINUTE)
    # Its worker found room in the first block, long after others had filled more.
    ended(shared, HOUR + 40 * MINUTE)
    ended(shared, HOUR - 40 * MINUTE, 300)
    for minute in range(1, 30):
        ended(shared, HOUR + minute * MINUTE, 100)
    ended(shared, HOUR + 40 * MINUTE, 100)
    roll_up(hand, HOUR + 32 * MINUTE)
    roll_up(hand, HOUR + 45 * MINUTE)
    assert [row.succeeded for row in figures(hand, hours=1).hours] == [3000], (
        "the end of the day does not have it"
    )
    roll_up(hand, HOUR + 66 * MINUTE)
    assert [row.succeeded for row in figures(hand, hours=2).hours] == [3001]


@rule("M85")
def test_a_clock_that_was_ahead_and_is_set_right_costs_no_hour(
    shared: Connection, hand: Hand
) -> None:
    ended(shared, HOUR + MINUTE, 3)
    roll_up(hand, HOUR + 10 * MINUTE)
    shared.execute("select rota.partition_ensure('job_history', '2026-01-15'::date)")
    ended(shared, HOUR + timedelta(days=1), 2)
    roll_up(hand, HOUR + timedelta(days=1, minutes=10))
    ended(shared, HOUR + 11 * MINUTE, 4)
    roll_up(hand, HOUR + 15 * MINUTE)
    assert [row.succeeded for row in figures(hand).types] == [7]
    roll_up(hand, HOUR + 90 * MINUTE)
    assert [row.succeeded for row in figures(hand).types] == [7]
    roll_up(hand, HOUR + timedelta(days=1, minutes=90))
    assert [row.succeeded for row in figures(hand, hours=48).hours] == [2, 7]


@rule("M85")
@pytest.mark.parametrize("complete_to", [HOUR, HOUR + 30 * MINUTE])
def test_figures_of_a_day_that_history_has_no_more_stay(
    shared: Connection, hand: Hand, complete_to: datetime
) -> None:
    ended(shared, HOUR + MINUTE, 3)
    roll_up(hand, HOUR + 65 * MINUTE)
    shared.execute("drop table rota.job_history_20260114")
    shared.execute("update rota.stat_rollup set complete_to = %s", [complete_to])
    roll_up(hand, HOUR + 90 * MINUTE)
    [stayed] = figures(hand).types
    assert stayed.succeeded == 3 and figures(hand).complete_to == HOUR + 89.5 * MINUTE


@rule("M85")
def test_a_recount_of_the_hour_that_is_not_over_counts_nothing_twice(
    shared: Connection, hand: Hand
) -> None:
    ended(shared, HOUR + MINUTE, 3)
    roll_up(hand, HOUR + 10 * MINUTE)
    shared.execute("update rota.stat_rollup set complete_to = %s", [HOUR])
    roll_up(hand, HOUR + 15 * MINUTE)
    assert [row.succeeded for row in figures(hand).types] == [3]


@rule("M80", "M85")
def test_a_drain_counts_before_its_jobs_what_ended_since_one_of_days_ago(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    app.job("noop")(lambda: None)
    connection.execute("update rota.stat_rollup set complete_to = now() - interval '30 hours'")
    app.drain()
    behind = "select now() - complete_to < interval '1 hour' from rota.stat_rollup"
    app.close()
    assert connection.execute(behind).fetchall() == [(True,)]


@rule("M85")
def test_failures_are_counted_with_the_queue_of_their_job(shared: Connection) -> None:
    shared.execute(
        "update rota.stat_rollup "
        "set complete_to = date_trunc('hour', now(), 'UTC') - interval '1 hour'"
    )
    hand = Hand(shared, queues=["q"])
    again, dead, gone, over = insert(shared, 4, queue="q")
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[again], FAIL), (jobs[dead], GIVE_UP), (jobs[gone], FAIL), (jobs[over], FAIL))
    shared.execute("delete from rota.job where id = %s", [gone])
    shared.execute("update rota.job set cancel_requested_at = now() where id = %s", [over])
    shared.execute("select rota.job_to_history(array[%s::int8], 'cancelled')", [over])
    roll_up(hand, datetime.now(UTC) + timedelta(minutes=5))
    rows = shared.execute(
        "select queue, sum(retried), sum(dead), sum(cancelled) from rota.stat_hour group by 1 "
        "order by 1"
    ).fetchall()
    assert rows == [("default", 1, 0, 0), ("q", 2, 1, 1)]


def failed(
    connection: Connection,
    count: int,
    release: str | None,
    at: datetime = HOUR + MINUTE,
    *,
    job_type: str = "t",
    outcome: str = "failed",
    worker: str = "w",
    error: str = "OSError",
) -> None:
    """Insert attempts that failed, of jobs that are no more."""
    connection.execute(
        "insert into rota.attempt (job, claim, attempt, job_type, worker, release, finished_at, "
        "outcome, error_type) select n, 1, 1, %s, %s, %s, %s, %s, %s from generate_series(1, %s) n",
        [job_type, worker, release, at, outcome, error, count],
    )


@rule("M85")
def test_failures_are_counted_by_release_and_again_when_history_is_counted_again(
    shared: Connection, hand: Hand
) -> None:
    failed(shared, 2, "2.4.0")
    failed(shared, 30, "2.4.1")
    failed(shared, 10, "2.4.1", HOUR + 3 * MINUTE, outcome="dead")
    failed(shared, 5, "2.4.0", HOUR + 61 * MINUTE)
    failed(shared, 4, "2.4.0", job_type="u")
    failed(shared, 3, None, outcome="dead", error="Expired")
    ended(shared, HOUR + MINUTE, job_type="v")

    for minutes in (4, 10, 70):
        roll_up(hand, HOUR + minutes * MINUTE)
    for _ in range(2):
        stats = figures(hand)
        assert [(row.job_type, list(row.failed_by_release.items())) for row in stats.types] == [
            ("t", [("2.4.1", 40), ("2.4.0", 7)]),
            ("u", [("2.4.0", 4)]),
            ("v", []),
        ]
        assert [
            (row.hour, row.failed_by_release) for row in stats.hours if row.job_type == "t"
        ] == [(HOUR + 60 * MINUTE, {"2.4.0": 5}), (HOUR, {"2.4.1": 40, "2.4.0": 2})]
        assert list(stats.failed_by_release.items()) == [("2.4.1", 40), ("2.4.0", 11)]
        assert [(row.retried, row.dead) for row in stats.types] == [(37, 13), (4, 0), (0, 0)]
        of_u = hand.run(ops.stats(24, "u", None))
        assert of_u.failed_by_release == {"2.4.0": 4}
        shared.execute("update rota.stat_rollup set complete_to = %s", [HOUR])
        roll_up(hand, HOUR + 70 * MINUTE)


@rule("M85")
def test_what_a_dead_worker_lost_counts_for_its_release_and_what_expired_for_none(
    shared: Connection, hand: Hand
) -> None:
    Hand(shared, "crashes", release="2.4.1").send_heartbeat()
    failed(shared, 2, None, worker="crashes", error="LeaseExpired")
    failed(shared, 4, None, worker="crashes", error="Expired", outcome="dead")
    failed(shared, 8, None, worker="forgotten", error="LeaseExpired")
    roll_up(hand, HOUR + 10 * MINUTE)
    [row] = figures(hand).types
    assert (row.retried, row.dead, row.failed_by_release) == (10, 4, {"2.4.1": 2})


@rule("M13", "M85")
def test_an_hour_keeps_the_twenty_releases_with_the_most_failures(
    shared: Connection, hand: Hand
) -> None:
    for number in range(25):
        failed(shared, 1 + number % 5, f"r{number}", HOUR + (number % 3) * MINUTE)
        if number % 8 == 0:
            roll_up(hand, HOUR + 5 * MINUTE)
    shared.execute("update rota.stat_rollup set complete_to = %s", [HOUR])
    roll_up(hand, HOUR + 65 * MINUTE)
    [row] = figures(hand).types
    assert len(row.failed_by_release) == 20 and row.retried == 75
    assert sorted(set(row.failed_by_release.values())) == [2, 3, 4, 5]


@rule("M85")
def test_percentiles_are_exact_to_ten_percent(shared: Connection, hand: Hand) -> None:
    dice = random.Random(5)
    spreads = {"close": 1.5, "wide": 4.0, "very wide": 10.0}
    times = {
        name: sorted(0.002 * spread ** dice.uniform(0, 6) for _ in range(301))
        for name, spread in spreads.items()
    }
    for name, ran in times.items():
        ended(shared, HOUR + MINUTE, job_type=name, ran=ran[::2])
        ended(shared, HOUR + 61 * MINUTE, job_type=name, ran=ran[1::2])
    roll_up(hand, HOUR + 70 * MINUTE)
    for row in figures(hand).types:
        for share, ran_s, waited_s in (
            (0.5, row.ran_p50_s, row.waited_p50_s),
            (0.95, row.ran_p95_s, row.waited_p95_s),
        ):
            assert (
                ran_s == waited_s == pytest.approx(times[row.job_type][int(share * 301)], rel=0.1)
            )


# Not all blocks of a plan: what of the catalog is read again, when others have changed much of
# theirs, is more than that.
OF_HISTORY = """
select sum(pg_relation_size(oid)) filter (where relname like 'job_history_2%'
  and relkind = 'r') / 8192,
  sum(pg_stat_get_xact_blocks_fetched(oid))::int
from pg_class where relname ~ '^(job_history|attempt)_2' and relkind in ('r', 'i')"""


@pytest.mark.nightly
@rule("M85", "M14")
def test_stats_and_a_rollup_read_the_end_of_a_day(connection: Connection) -> None:
    # A moment after the full hour the one before is counted anew, from all of its day.
    now = HOUR + timedelta(minutes=30)
    set_clock(connection, now)
    fill(connection, 60_000, days=1)
    hand = Hand(connection)
    connection.execute("analyze rota.job, rota.job_history, rota.attempt")
    connection.execute(
        "update rota.stat_rollup "
        "set complete_to = date_trunc('hour', rota.clock(), 'UTC') - interval '3 hours'"
    )
    assert roll_up(hand, now) <= 5
    stats = figures(hand)
    assert sum(row.succeeded for row in stats.types) > 6_000 and stats.jobs["dead"] > 0

    def read_of_history(operation: Callable[[], object]) -> int:
        """Return how many blocks of history it reads, and assert that it reads no table whole."""
        with connection.transaction():
            [(_, before)] = connection.execute(OF_HISTORY)
            at = Search._read(connection)
            operation()
            [(_, after)] = connection.execute(OF_HISTORY)
            whole = {name for name, kind in Search._read(connection) - at if kind == "seq"}
            assert not {name for name in whole if name.startswith(("job_history", "attempt"))}
            return int(after - before)

    [(blocks, _)] = connection.execute(OF_HISTORY)
    assert read_of_history(lambda: figures(hand)) == 0
    connection.execute(
        "update rota.stat_rollup set complete_to = complete_to - interval '1 minute'"
    )
    assert 0 < read_of_history(lambda: hand.run(ops.roll_up_stats())) < blocks / 10


@rule("M85", "M14")
@pytest.mark.parametrize("many", ["queued", "dead"])
def test_counts_by_status_cost_the_same_beside_many_others(
    connection: Connection, many: str
) -> None:
    connection.execute("set session_replication_role = replica")
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at, status, failed_at) "
        "select 't', 'default', 0, rota.clock() + interval '1 hour', %s, rota.clock() from "
        "generate_series(1, 60000)",
        [many],
    )
    insert(connection, 3, queue="default", priority=0)
    connection.execute(
        "update rota.job set status = 'failed' where id = (select max(id) from rota.job)"
    )
    connection.execute("analyze rota.job")
    hand = Hand(connection)
    query = next(ops.stats(1, None, None))
    touched = count_blocks(connection, hand.database.statements[query.name], query.params)
    [(blocks,)] = connection.execute("select pg_relation_size('rota.job') / 8192")
    assert touched < blocks / 4, (touched, blocks)
    jobs = figures(hand).jobs
    assert jobs == {"queued": 2, "waiting": 0, "running": 0, "failed": 1, "dead": 0} | {
        many: 10_000
    }


@rule("M13", "M85")
def test_figures_go_when_they_are_old_enough(shared: Connection, hand: Hand) -> None:
    set_clock(shared, HOUR)
    for days in (399, 400, 401):
        shared.execute(
            "insert into rota.stat_hour (hour, job_type, queue) values (%s, 't', 'q')",
            [HOUR - timedelta(days=days, hours=1)],
        )
    assert hand.run(ops.forget_rows("figures", 1)) == 1
    assert hand.run(ops.forget_rows("figures", 10)) == 1
    assert hand.run(ops.forget_rows("figures", 10)) == 0
    assert len(shared.execute("select from rota.stat_hour").fetchall()) == 1
