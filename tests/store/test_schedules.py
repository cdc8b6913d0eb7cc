"""Ticks become jobs: each once, in the transaction that announces the next, and what is not
enqueued leaves a trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from rota.errors import DatabaseUnavailable
from rota.model import cron
from rota.model.schedule import plan
from rota.observe.events import RunEnqueued, RunSkipped, RunsMissed, ScheduleRefused
from rota.store import ops
from rota.upkeep import scheduler
from rota.upkeep.scheduler import DISABLE_PERIOD_S, REFUSED_S
from tests.store.cost import count_blocks
from tests.store.planned import Passes, at, fact, put, set_clock, ticks
from tests.store.work import GIVE_UP, SUCCEED, Connection, Hand
from tests.support.clock import ManualClock
from tests.support.rules import rule

EVER = at("1970-01-01 00:00")


@pytest.fixture
async def passes(database: str) -> AsyncIterator[Passes]:
    async with Passes(database) as made:
        yield made


@rule("M10", "M82")
async def test_a_row_inserted_by_sql_is_planned_by_the_next_pass_and_enqueued_when_its_tick_comes(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, payload='{"a": 1}')
    assert fact(connection, "origin") == "sql"
    assert fact(connection, "next_run_at") is None
    assert await passes() == DISABLE_PERIOD_S
    assert (fact(connection, "next_run_at"), ticks(connection)) == (at("2026-03-01 12:00"), [])
    set_clock(connection, "2026-03-01 12:00:00")
    await passes()
    assert ticks(connection) == [("12:00", "queued")]
    row = connection.execute(
        "select job_type, payload, queue, priority, schedule, scheduled_for, run_at from rota.job"
    ).fetchone()
    assert row == ("t", {"a": 1}, "default", 0, "s", at("2026-03-01 12:00"), at("2026-03-01 12:00"))
    assert (fact(connection, "next_run_at"), fact(connection, "last_run_at")) == (
        at("2026-03-01 13:00"),
        at("2026-03-01 12:00"),
    )
    [event] = passes.of(RunEnqueued)
    assert (event.job, event.scheduled_for) == (
        fact(connection, "last_job"),
        at("2026-03-01 12:00"),
    )


@rule("M22", "M82")
async def test_a_pass_pauses_until_the_next_tick_even_if_another_worker_asks_for_new_rows(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:59:58")
    passes.scheduler.is_at_rest = True  # another worker asks for what is new
    assert await passes() == DISABLE_PERIOD_S
    put(connection)
    pause_s = await passes()
    assert pause_s is not None and 0 < pause_s <= 2
    again_s = await passes()
    assert again_s is not None and 0 < again_s <= 2


@rule("M82")
async def test_a_tick_between_the_insert_and_the_first_pass_is_kept_and_earlier_ones_do_not_count(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:59:59")
    put(connection, catch_up="all")
    set_clock(connection, "2026-03-01 12:00:03")
    await passes()
    assert ticks(connection) == [("12:00", "queued")]


@rule("M82")
@pytest.mark.parametrize(
    ("catch_up", "expected", "missed"),
    [("skip", [], 4), ("all", ["12:00", "13:00", "14:00", "15:00"], 0)],
)
async def test_ticks_missed_while_no_worker_was_up_are_caught_up_by_the_policy(
    connection: Connection, passes: Passes, catch_up: str, expected: list[str], missed: int
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, catch_up=catch_up, overlap="allow")
    await passes()
    set_clock(connection, "2026-03-01 15:59:59")
    await passes()
    assert ticks(connection) == [(tick, "queued") for tick in expected], "overlap is allowed"
    assert sum(event.runs for event in passes.of(RunsMissed)) == missed
    assert fact(connection, "next_run_at") == at("2026-03-01 16:00")
    await passes()
    assert len(ticks(connection)) == len(expected)


# Overlap


@rule("M82")
async def test_a_tick_is_skipped_and_recorded_while_an_earlier_run_is_still_going(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, queue="q", priority=7)
    await passes()
    set_clock(connection, "2026-03-01 12:00:00")
    await passes()
    live = fact(connection, "last_job")
    set_clock(connection, "2026-03-01 13:00:00")
    await passes()
    assert ticks(connection) == [("12:00", "queued"), ("13:00", "cancelled")]
    [row] = connection.execute(
        "select status, error_type, last_error, schedule, scheduled_for, queue, priority, "
        "finished_at from rota.job_history"
    ).fetchall()
    assert row == (
        "cancelled",
        "Overlap",
        f"job {live} of this schedule was still queued",
        "s",
        at("2026-03-01 13:00"),
        "q",
        7,
        at("2026-03-01 13:00"),
    )
    assert (fact(connection, "last_job"), fact(connection, "last_run_at")) == (
        live,
        at("2026-03-01 12:00"),
    )
    [event] = passes.of(RunSkipped)
    assert event.live == live


@rule("M82")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("running", "cancelled"),
        ("failed", "cancelled"),
        ("waiting", "cancelled"),
        ("dead", "queued"),
        ("succeeded", "queued"),
    ],
)
async def test_a_run_counts_as_going_until_it_is_over_or_dead(
    connection: Connection, passes: Passes, status: str, expected: str
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    connection.execute("select rota.partitions_ensure(1)")
    put(connection)
    await passes()
    set_clock(connection, "2026-03-01 12:00:00")
    await passes()
    if status in ("failed", "waiting"):
        connection.execute("update rota.job set status = %s, run_at = '2026-03-02Z'", [status])
    else:
        hand = Hand(connection)
        [job] = hand.claim().jobs
        if status != "running":
            hand.settle((job, GIVE_UP if status == "dead" else SUCCEED))
    set_clock(connection, "2026-03-01 13:00:00")
    await passes()
    assert ticks(connection) == [("12:00", status), ("13:00", expected)]


@rule("M82")
async def test_all_that_may_not_overlap_runs_the_earliest_and_records_the_others(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, catch_up="all")
    await passes()
    set_clock(connection, "2026-03-01 14:10:00")
    await passes()
    assert ticks(connection) == [
        ("12:00", "queued"),
        ("13:00", "cancelled"),
        ("14:00", "cancelled"),
    ]


# Once for all workers


@rule("M82")
async def test_who_has_read_a_tick_that_another_has_done_since_enqueues_nothing(
    connection: Connection, second: Connection
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, overlap="allow")
    connection.execute("update rota.schedule set next_run_at = '2026-03-01 12:00Z'")
    set_clock(connection, "2026-03-01 12:00:00")
    hand, other = Hand(connection), Hand(second)
    agenda = hand.run(ops.schedules_due(EVER, 10))
    late = other.run(ops.schedules_due(EVER, 10)).due[0]
    decided = plan(late, agenda.now)
    done = hand.run(ops.advance(agenda.due[0], decided))
    assert isinstance(done, list) and len(done) == 1
    assert other.run(ops.advance(late, decided)) is None
    assert ticks(connection) == [("12:00", "queued")]


@rule("M82")
async def test_a_scheduler_that_dies_between_the_job_and_the_next_tick_leaves_both_undone(
    connection: Connection, database: str, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection)
    await passes()
    set_clock(connection, "2026-03-01 12:00:00")
    with psycopg.connect(database) as doomed:
        agenda = Hand(doomed).run(ops.schedules_due(EVER, 10))
        Hand(doomed).run(ops.advance(agenda.due[0], plan(agenda.due[0], agenda.now)))
        assert await passes() == DISABLE_PERIOD_S, (
            "the row is locked: the pass does not wait for it"
        )
        assert ticks(connection) == []
        doomed.execute("select 1")
        # It says that it dies before it lets go of its locks.
        assert connection.execute(
            "select pg_terminate_backend(%s, 30000)", [doomed.info.backend_pid]
        ).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError):
            doomed.execute("select 1")
    assert fact(connection, "next_run_at") == at("2026-03-01 12:00")
    await passes()
    assert ticks(connection) == [("12:00", "queued")]


# Changes by SQL


@rule("M82")
async def test_a_change_of_expression_or_zone_counts_from_now_and_other_changes_leave_the_next_tick(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, cron="0 2 * * *")
    await passes()
    assert fact(connection, "next_run_at") == at("2026-03-02 02:00")
    connection.execute("update rota.schedule set payload = '{\"a\": 2}', catch_up = 'all'")
    assert fact(connection, "next_run_at") == at("2026-03-02 02:00")
    set_clock(connection, "2026-03-01 13:30:00")
    connection.execute("update rota.schedule set cron = '0 12,14 * * *'")
    await passes()
    assert (fact(connection, "next_run_at"), ticks(connection)) == (at("2026-03-01 14:00"), [])
    connection.execute("update rota.schedule set timezone = 'Asia/Kolkata'")
    await passes()
    assert (fact(connection, "next_run_at"), ticks(connection)) == (at("2026-03-02 06:30"), [])


@rule("M10")
@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"cron": "61 * * * *"}, "is no cron expression"),
        ({"cron": "often"}, "is no cron expression"),
        ({"cron": "0 0 30 2 *"}, "never fires"),
        ({"timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ({"catch_up": "first"}, "catch_up must be 'skip' or 'latest' or 'all', not 'first'"),
    ],
)
async def test_a_row_that_this_worker_cannot_read_stays_due_and_says_why_once_it_is_overdue(
    database: str, connection: Connection, columns: dict[str, str], why: str
) -> None:
    clock = ManualClock()
    set_clock(connection, "2026-03-01 11:30:00")
    if "catch_up" in columns:  # a newer schema may have it
        connection.execute("alter table rota.schedule drop constraint schedule_catch_up_check")
    put(connection, **{"cron": "0 * * * *", **columns})
    put(connection, "other")
    async with Passes(database, clock) as passes:
        await passes()
        clock.advance(REFUSED_S[1])
        await passes()
        [event] = passes.of(ScheduleRefused)
        assert why in event.reason and not event.paused
        assert (fact(connection, "paused_at"), fact(connection, "last_error")) == (None, None)
        assert fact(connection, "next_run_at", "other") == at("2026-03-01 12:00")
        set_clock(connection, "2026-03-01 11:31:01")
        clock.advance(REFUSED_S[1])
        await passes()
        [(name, said)] = connection.execute(
            "select name, last_error from rota.schedules_overdue('1 minute', null)"
        ).fetchall()
        assert name == "s" and why in said
        connection.execute(
            "update rota.schedule set cron = '0 * * * *', timezone = 'UTC', catch_up = 'all'"
            " where name = 's'"
        )
        await passes()
    assert fact(connection, "next_run_at") == at("2026-03-01 12:00")
    assert fact(connection, "last_error") is None


@rule("M10", "M82")
async def test_a_worker_with_older_time_zones_loses_no_run_that_another_worker_can_fire(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, timezone="America/Coyhaique", catch_up="all", overlap="allow")
    clock = ManualClock()
    async with Passes(database) as newer, Passes(database, clock) as older:
        await newer()
        for now, is_overdue in (("12:00:59", False), ("14:10:00", True)):
            set_clock(connection, f"2026-03-01 {now}")
            clock.advance(REFUSED_S[1])
            with monkeypatch.context() as patch:
                patch.setattr(cron, "ZoneInfo", {}.__getitem__)
                await older()
            assert older.of(RunEnqueued) == []
            assert (fact(connection, "last_error") is not None) is is_overdue
        await newer()
    assert [tick for tick, _ in ticks(connection)] == ["12:00", "13:00", "14:00"]


@rule("M10", "M82")
async def test_rows_that_a_worker_cannot_read_keep_no_other_schedule_from_it(
    connection: Connection, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "PORTION", 2)
    for second in range(5):
        set_clock(connection, f"2026-03-01 11:30:0{second}")
        put(connection, f"s{second}", cron="often" if second < 4 else "0 * * * *")
    while await passes() == 0:
        pass
    assert fact(connection, "next_run_at", "s4") == at("2026-03-01 12:00")


@rule("M10")
async def test_a_row_whose_payload_is_over_the_limit_is_paused_until_it_is_mended_and_others_run(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, "payload", payload='{"text": "12345678901234567890"}')
    put(connection, "other")
    await passes()
    connection.execute(
        "create or replace function rota.payload_bytes_max() returns int language sql immutable "
        "parallel safe as 'select 20'"
    )
    set_clock(connection, "2026-03-01 12:00:00")
    await passes()
    assert fact(connection, "paused_by", "payload") == "rota"
    assert "over the limit of 20" in fact(connection, "paused_why", "payload")
    assert ticks(connection, "other") == [("12:00", "queued")]
    set_clock(connection, "2026-03-01 12:40:00")
    connection.execute("update rota.schedule set payload = '{}' where name = 'payload'")
    await passes()
    assert ticks(connection, "payload") == [("12:00", "queued")]


@rule("M2", "M82")
async def test_a_tick_that_the_database_refuses_is_tried_again_after_growing_pauses(
    database: str, connection: Connection
) -> None:
    clock = ManualClock()
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection)
    put(connection, "other")
    async with Passes(database, clock) as passes:
        await passes()
        connection.execute("alter table rota.job add constraint mine check (schedule <> 's')")
        set_clock(connection, "2026-03-01 12:00:00")
        await passes()
        assert ticks(connection, "other") == [("12:00", "queued")]
        tried: list[float] = []
        for second in range(40):
            before = connection.execute("select nextval('rota.job_id_seq')").fetchone()
            await passes()
            after = connection.execute("select nextval('rota.job_id_seq')").fetchone()
            assert before is not None and after is not None
            tried += [second] * (after[0] - before[0] - 1)
            clock.advance(1)
        assert tried == [5, 15, 35]
        assert (fact(connection, "paused_at"), fact(connection, "refused")) == (None, False)
        assert "mine" in fact(connection, "last_error")
        [event] = passes.of(ScheduleRefused)
        assert not event.paused and "mine" in event.reason
        connection.execute("alter table rota.job drop constraint mine")
        clock.advance(REFUSED_S[1])
        await passes()
    assert ticks(connection) == [("12:00", "queued")]
    assert fact(connection, "last_error") is None


@rule("M2", "M82")
async def test_a_tick_that_stands_behind_a_lock_keeps_no_other_waiting(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, "first")
    put(connection, "other", cron="1 * * * *")
    await passes()
    connection.execute(
        "create function public.no() returns trigger language plpgsql as $$ begin"
        " if new.schedule = 'first' then raise lock_not_available using message = 'not now'; end "
        "if; return new; end $$;"
        "create trigger no before insert on rota.job for each row execute function public.no()"
    )
    set_clock(connection, "2026-03-01 12:01:00")
    with pytest.raises(DatabaseUnavailable, match="not now"):
        await passes()
    assert (ticks(connection, "first"), ticks(connection, "other")) == ([], [("12:01", "queued")])
    connection.execute("drop trigger no on rota.job")
    await passes()
    assert ticks(connection, "first") == [("12:00", "queued")]


@rule("M36")
async def test_a_run_takes_what_the_schedule_leaves_out_from_its_type_expiry_too(
    connection: Connection, passes: Passes
) -> None:
    connection.execute(
        "insert into rota.job_type (name, queue, priority, expires) values ('t', 'mail', 5, '10 "
        "minutes')"
    )
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection)
    put(
        connection,
        "own",
        queue="q",
        priority=1,
        max_attempts=2,
        expires="1 minute",
        meta='{"m": 1}',
    )
    put(connection, "half", queue="q", priority=1)
    await passes()
    set_clock(connection, "2026-03-01 12:30:00")  # late: a run has its time from now on
    await passes()
    rows = connection.execute(
        "select schedule, queue, priority, max_attempts, extract(minute from expires_at - "
        "rota.clock())::int, meta from rota.job order by schedule"
    ).fetchall()
    assert rows == [
        ("half", "q", 1, None, 10, None),
        ("own", "q", 1, 2, 1, {"m": 1}),
        ("s", "mail", 5, None, 10, None),
    ]


@rule("M82")
async def test_jitter_puts_the_run_off_and_leaves_the_tick(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    for number in range(10):
        put(connection, f"s{number}", jitter="10 minutes")
    await passes()
    set_clock(connection, "2026-03-01 12:00:00")
    await passes()
    rows = connection.execute(
        "select scheduled_for, run_at - scheduled_for from rota.job"
    ).fetchall()
    assert {tick for tick, _ in rows} == {at("2026-03-01 12:00")}
    spreads_s = {spread.total_seconds() for _, spread in rows}
    assert len(spreads_s) == 10 and all(0 <= spread_s < 600 for spread_s in spreads_s)


@rule("M87")
async def test_a_pause_by_plain_sql_holds_and_its_end_counts_from_now(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection, catch_up="all")
    await passes()
    connection.execute("update rota.schedule set paused_at = rota.clock()")
    assert connection.execute("select paused_by = session_user from rota.schedule").fetchone() == (
        True,
    )
    set_clock(connection, "2026-03-01 14:10:00")
    await passes()
    assert ticks(connection) == []
    connection.execute("update rota.schedule set paused_at = null")
    await passes()
    assert (ticks(connection), fact(connection, "next_run_at"), fact(connection, "paused_by")) == (
        [],
        at("2026-03-01 15:00"),
        None,
    )


@rule("M82", "M87")
async def test_while_everything_is_paused_nothing_ticks_and_afterwards_it_is_as_after_an_outage(
    connection: Connection, passes: Passes
) -> None:
    set_clock(connection, "2026-03-01 11:30:00")
    put(connection)
    await passes()
    agenda_before = Hand(connection).run(ops.schedules_due(EVER, 10))
    connection.execute("update rota.installation set paused_at = rota.clock()")
    set_clock(connection, "2026-03-01 13:10:00")
    await passes()
    assert agenda_before.due == [] and ticks(connection) == []
    connection.execute("update rota.installation set paused_at = null")
    seen = Hand(connection).run(ops.schedules_due(EVER, 10))
    connection.execute("update rota.installation set paused_at = rota.clock()")
    assert Hand(connection).run(ops.advance(seen.due[0], plan(seen.due[0], seen.now))) is None, (
        "one who had read it before"
    )
    connection.execute("update rota.installation set paused_at = null")
    await passes()
    assert ticks(connection) == [("13:00", "queued")]


# What it costs


@rule("M14")
def test_an_idle_pass_reads_the_next_tick_from_the_index_and_not_what_has_gone_by(
    connection: Connection,
) -> None:
    connection.execute("select rota.copy_check()")  # as a worker does before its first claim
    put(connection, "s", cron="0 * * * *")
    connection.execute("update rota.schedule set next_run_at = rota.clock() + interval '1 hour'")
    connection.execute("set session_replication_role = replica")
    connection.execute(
        "insert into rota.schedule (name, job_type, cron, paused_at, since) select 'p' || n, 't', "
        "'0 * * * *', rota.clock(), rota.clock() from generate_series(1, 20000) n"
    )
    connection.execute("vacuum analyze rota.schedule")
    asked = "select * from rota.schedules_due(rota.clock() - interval '1 minute', 100)"
    connection.execute(asked)
    assert count_blocks(connection, asked) < 20


@rule("M10", "M14")
def test_the_runs_of_a_schedule_are_found_without_the_rest_of_history(
    connection: Connection,
) -> None:
    connection.execute("select rota.partitions_ensure(7)")
    connection.execute(
        "insert into rota.job_history (id, queue, job_type, payload, status, priority, run_at, "
        "attempts, claims, created_at, updated_at,"
        " finished_at) select n, 'default', 't', '{}', 'succeeded', 0, now(), 1, 1, now(), now(), "
        "rota.clock() + n % 7 * interval '1 day'"
        " from generate_series(1, 20000) n"
    )
    connection.execute(
        "insert into rota.schedule_run (schedule, job, enqueued_at) select 's' || n % 5, n, "
        "rota.clock() from generate_series(1, 20000) n"
    )
    connection.execute("analyze rota.job_history, rota.schedule_run, rota.job")
    put(connection, "s1")
    connection.execute("select rota.worker_declare('t')")
    for query in (
        "select * from rota.runs where schedule = 's1' order by job desc limit 10",
        "select rota.schedule_trouble(s) from rota.schedule s, generate_series(1, 10)",
    ):
        assert len(connection.execute(query.encode()).fetchall()) == 10
        assert count_blocks(connection, query) < 400
