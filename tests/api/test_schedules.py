"""What an application and its operators do with schedules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.model.settle import Transition
from rota.observe.events import Event, RunEnqueued, WorkerStarted
from tests.store.planned import at, set_clock
from tests.store.work import GIVE_UP, SUCCEED, Hand
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def shop(app: rota.App, connection: Connection) -> rota.App:
    """Make an App with a job type, on a database whose clock shows noon."""
    set_clock(connection, "2026-03-28 12:00:00")
    app.job("report")(lambda day="today": None)
    return app


def actions(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select verb, schedule, by, why from rota.action order by id"
    ).fetchall()


@rule("M10", "M82")
def test_sync_declares_what_the_code_says_and_announces_the_next_tick(shop: rota.App) -> None:
    shop.schedule("nightly", "30 2 * * *", shop.types["report"].new(), timezone="Europe/Stockholm")
    shop.schedule("by hand", None, shop.types["report"].new())
    synced = shop.sync()
    assert (synced.job_types, synced.schedules) == (["report"], ["by hand", "nightly"])
    by_hand, nightly = shop.schedules.list()
    assert (nightly.origin, nightly.release, nightly.next_run_at) == (
        "code",
        "unknown",
        at("2026-03-29 01:00"),
    )
    assert (by_hand.cron, by_hand.next_run_at, by_hand.is_active, by_hand.next_times()) == (
        None,
        None,
        False,
        [],
    )
    stockholm = ZoneInfo("Europe/Stockholm")
    assert nightly.next_times(2) == [
        datetime(2026, 3, 29, 3, 0, tzinfo=stockholm),
        datetime(2026, 3, 30, 2, 30, tzinfo=stockholm),
    ]
    assert nightly.next_times(1)[0].utcoffset() == timedelta(hours=2)
    assert len(nightly.next_times()) == 10
    for count in (-1, 1_001, None):  # None would have no end
        with pytest.raises(rota.UsageError, match="count must be a whole number from 0 to 1,000"):
            nightly.next_times(count)  # type: ignore[arg-type]


@rule("M10", "M87")
def test_put_makes_and_changes_a_schedule_and_says_who_and_why(
    shop: rota.App, connection: Connection
) -> None:
    job = shop.types["report"].using(queue="slow").new(day="monday")
    made = shop.schedules.put(
        "weekly", "0 3 * * 1", job, by="ann", why="asked by sales", jitter="5m"
    )
    assert (made.origin, made.queue, made.payload, made.next_run_at) == (
        "api",
        "slow",
        {"day": "monday"},
        at("2026-03-30 03:00"),
    )
    assert (made.jitter_s, made.is_active) == (300.0, True)
    changed = shop.schedules.put("weekly", "0 4 * * 1", job)
    assert (changed.next_run_at, changed.jitter_s) == (at("2026-03-30 04:00"), None)
    assert actions(connection)[0] == ("put", "weekly", "ann", "asked by sales")
    assert "@" in actions(connection)[1][2]


@rule("M87")
def test_pause_resume_trigger_and_delete_are_kept_with_who_and_why(
    shop: rota.App, connection: Connection
) -> None:
    shop.schedules.put("s", "0 * * * *", shop.types["report"].new(), catch_up="all", by="ann")
    paused = shop.schedules.pause("s", by="bob", why="stocktaking")
    assert (paused.paused_by, paused.paused_why, paused.is_active) == ("bob", "stocktaking", False)
    set_clock(connection, "2026-03-28 15:30:00")
    resumed = shop.schedules.resume("s", by="cy")
    assert (resumed.paused_at, resumed.paused_why) == (None, None)
    assert resumed.next_run_at == at("2026-03-28 16:00"), (
        "what fell into the pause is not caught up with"
    )
    job = shop.get(shop.schedules.trigger("s", by="dan"))
    assert (job.schedule, job.scheduled_for, job.status) == ("s", None, "queued")
    assert (shop.schedules.get("s").last_job, shop.schedules.get("s").last_run_at) == (
        job.id,
        at("2026-03-28 15:30"),
    )
    shop.schedules.delete("s", by="eve", why="no longer needed")
    assert shop.schedules.list() == []
    assert [run.job for run in shop.schedules.runs("s")] == [job.id] and shop.schedules.runs(
        "s", before=job.id
    ) == []
    assert actions(connection)[1:] == [
        ("pause", "s", "bob", "stocktaking"),
        ("resume", "s", "cy", None),
        ("trigger", "s", "dan", None),
        ("delete", "s", "eve", "no longer needed"),
    ]


@rule("M20")
def test_a_schedule_is_put_and_triggered_in_the_caller_s_transaction(
    shop: rota.App, database: str
) -> None:
    with psycopg.connect(database) as own:
        shop.schedules.put("s", "0 * * * *", shop.types["report"].new(), connection=own)
        shop.schedules.trigger("s", connection=own)
        own.rollback()
    assert shop.schedules.list() == [] and shop.find() == []


@rule("M82")
def test_a_code_schedule_is_changed_and_deleted_in_the_code(
    shop: rota.App, connection: Connection
) -> None:
    job = shop.types["report"].new()
    shop.schedule("s", "0 * * * *", job)
    shop.sync()
    with pytest.raises(rota.UsageError, match="declared in code: change it there"):
        shop.schedules.put("s", "0 3 * * *", job)
    with pytest.raises(rota.UsageError, match="declared in code and would come back"):
        shop.schedules.delete("s")
    assert shop.schedules.get("s").cron == "0 * * * *"
    connection.execute("update rota.schedule set disabled_at = rota.clock()")
    assert shop.schedules.put("s", "0 3 * * *", job).origin == "api"
    shop.schedules.delete("s")
    assert [verb for verb, *_ in actions(connection)] == ["put", "delete"]


def test_a_name_that_no_schedule_has_is_said_with_the_nearest_one(
    shop: rota.App, connection: Connection
) -> None:
    calls = [
        getattr(shop.schedules, verb)
        for verb in ("get", "pause", "resume", "trigger", "delete", "runs")
    ]
    for call in calls:
        with pytest.raises(rota.errors.ScheduleNotFound, match=r"^no schedule 'nightly'$"):
            call("nightly")
    connection.execute(
        "insert into rota.schedule (name, job_type) values ('nightly', 't'), ('weekly', 't')"
    )
    for call in calls:
        with pytest.raises(
            rota.errors.ScheduleNotFound, match=r"^no schedule 'nigthly'; did you mean 'nightly'\?$"
        ) as caught:
            call("nigthly")
        assert (caught.value.schedule, caught.value.nearest) == ("nigthly", "nightly")
    with pytest.raises(rota.PayloadError, match="over the limit"):
        shop.schedules.put("s", None, shop.types["report"].new(day="x" * 70_000))
    assert actions(connection) == []


@rule("M10")
def test_every_run_is_listed_with_outcome_and_duration_a_page_at_a_time(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute("select rota.partitions_ensure(0)")
    shop.schedules.put("s", None, shop.types["report"].new())
    hand = Hand(connection, types=["report"])

    def trigger(*outcome: Transition) -> int:
        job = shop.schedules.trigger("s")
        for transition in outcome:
            hand.settle((hand.claim().jobs[0], transition), ran_s=7.0)
        return job

    ids = [trigger(SUCCEED), trigger(GIVE_UP), trigger(SUCCEED), trigger()]
    connection.execute("delete from rota.job_history where id = %s", [ids[2]])
    assert shop.schedules.runs("s")[1].status == "gone"
    # The third was a success that leaves no row.
    connection.execute("insert into rota.job_type (name, history) values ('report', 'failures')")
    newest, unkept, dead, first = shop.schedules.runs("s")
    assert [run.job for run in (newest, unkept, dead, first)] == ids[::-1]
    assert (first.status, first.ran_s, first.error_type) == ("succeeded", 7.0, None)
    assert (dead.status, dead.error_type, dead.last_error, dead.attempts) == (
        "dead",
        "OSError",
        "no route to host",
        1,
    )
    assert (unkept.status, unkept.ran_s) == ("succeeded", None)
    assert (newest.status, newest.ran_s, newest.scheduled_for) == ("queued", None, None)
    assert [run.job for run in shop.schedules.runs("s", before=ids[2], limit=1)] == [ids[1]]


@rule("M10")
def test_a_run_is_known_also_when_another_than_the_scheduler_inserted_it_and_forgotten_with_history(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, schedule, scheduled_for) values ('t', 's', rota.clock())"
    )
    assert len(shop.schedules.runs("s")) == 1
    forget = "select rota.rows_forget('runs', 10)"
    set_clock(connection, "2026-04-11 11:59:59")
    assert connection.execute(forget).fetchone() == (0,)
    set_clock(connection, "2026-04-11 12:00:01")
    assert connection.execute(forget).fetchone() == (1,)


@rule("M82", "M81")
async def test_a_drain_enqueues_what_is_due_first_and_the_handler_knows_its_tick(
    database: str, connection: Connection
) -> None:
    app = rota.App(database, release="1")
    seen: list[tuple[Any, ...]] = []

    @app.schedule("s", "0 * * * *")
    @app.job("t", takes_context=True)
    async def handler(ctx: rota.Context) -> None:
        seen.append((ctx.job.schedule, ctx.scheduled_for))

    set_clock(connection, "2026-03-28 12:00:00")
    assert (await app.adrain()).claimed == 0
    set_clock(connection, "2026-03-28 13:00:01")
    said: list[Event] = []
    app.on(RunEnqueued, said.append)
    app.on(WorkerStarted, said.append)
    assert (await app.adrain()).succeeded == 1
    assert [type(event) for event in said] == [RunEnqueued, WorkerStarted]
    [run] = await app.schedules.aruns("s")
    await app.aclose()
    assert seen == [("s", at("2026-03-28 13:00"))]
    assert (run.status, run.scheduled_for) == ("succeeded", at("2026-03-28 13:00"))


@rule("M81", "M82")
async def test_a_running_worker_runs_a_schedule_that_is_inserted_meanwhile(
    database: str, connection: Connection
) -> None:
    from tests.worker.hand import Hand

    jobs = rota.Jobs()
    jobs.job("t")(lambda: None)
    async with Hand(database, jobs) as hand:
        connection.execute(
            "insert into rota.schedule (name, job_type, cron, next_run_at) values ('s', 't', '0 0 "
            "1 1 *', rota.clock())"
        )
        await hand.heard(rota.events.RunEnqueued)
        await hand.heard(rota.events.JobSucceeded)


@rule("M87")
def test_nobody_acts_on_schedules_from_sql_without_a_grant(connection: Connection) -> None:
    for verb in ("pause", "resume", "trigger", "delete", "put"):
        asked = (
            f"select has_function_privilege('public', 'rota.schedule_{verb}'::regproc, 'execute')"
        )
        assert connection.execute(asked.encode()).fetchone() == (False,), verb


@rule("M87", "M15")
def test_each_action_on_a_schedule_answers_in_sql_and_says_who_it_was(
    connection: Connection,
) -> None:
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('s', 't', '0 2 * * *')"
    )
    for call, answer in (
        ("pause('s', 'why')", "paused"),
        ("resume('s')", "resumed"),
        ("resume('s')", "not paused"),
        ("trigger('s', p_by => 'ann')", 1),
        ("trigger('n')", None),
        ("delete('s')", "deleted"),
        ("delete('s')", "not found"),
    ):
        found = connection.execute(f"select rota.schedule_{call}".encode()).fetchone()
        assert found == (answer,), call
    [me] = connection.execute("select session_user").fetchone() or [None]
    assert [(verb, by) for verb, _, by, _ in actions(connection)] == [
        ("pause", me), ("resume", me), ("trigger", "ann"), ("delete", me)
    ]  # fmt: skip
