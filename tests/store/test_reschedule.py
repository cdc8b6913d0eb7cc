"""Jobs that people move to another time, priority or queue: what moves along, what is refused, and
races with a claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import rota
from rota.model.job import Action, Status
from rota.store import ops
from rota.store.statements import Statements
from tests.store.planned import set_clock
from tests.store.work import FAIL, Connection, Hand, after_it_waited, fetch, insert
from tests.support.rules import rule

NOON = datetime(2026, 1, 14, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _row(connection: Connection, job: int) -> dict[str, Any]:
    [[row]] = connection.execute(
        "select to_jsonb(j) from rota.job j where id = %s", [job]
    ).fetchall()
    return dict(row)


def _detail(connection: Connection) -> Any:
    return fetch(connection, "select detail from rota.action order by id desc limit 1")[0]


@rule("M22", "M87")
def test_a_job_moves_and_the_log_has_both_places_and_nothing_else_changes(
    app: rota.App, shared: Connection
) -> None:
    set_clock(shared, NOON)
    [job] = insert(shared, run_at=NOON + HOUR, idempotency_key="k")
    before = _row(shared, job)
    said = app.jobs.reschedule(
        job, run_at=NOON + 3 * HOUR, priority=7, queue="slow", why="she answered", by="ann"
    )
    assert said is Status.QUEUED
    moved = _row(shared, job)
    changed = {name for name in moved if moved[name] != before[name]}
    assert changed <= {"run_at", "priority", "queue", "updated_at"}
    found = app.get(job)
    assert (found.run_at, found.priority, found.queue) == (NOON + 3 * HOUR, 7, "slow")
    [entry] = app.jobs.log()
    assert (entry.verb, entry.job, entry.by, entry.why) == (
        "reschedule",
        job,
        "ann",
        "she answered",
    )
    assert entry.detail == {
        "was": "queued",
        "from": {"run_at": "2026-01-14T13:00:00+00:00", "priority": 0, "queue": "default"},
        "to": {"run_at": "2026-01-14T15:00:00+00:00", "priority": 7, "queue": "slow"},
    }
    assert fetch(shared, "select job, expires_at from rota.idempotency") == (job, None)


@rule("M22")
@pytest.mark.parametrize(
    ("moved", "due"),
    [
        ({"run_at": NOON - HOUR}, NOON),
        ({"delay": "0s"}, NOON),
        ({"delay": "90m"}, NOON + 1.5 * HOUR),
        ({"priority": 1}, NOON + HOUR),
    ],
)
def test_a_time_in_the_past_means_now_by_the_database_s_clock_and_none_leaves_it(
    app: rota.App, shared: Connection, moved: dict[str, Any], due: datetime
) -> None:
    set_clock(shared, NOON)
    [job] = insert(shared, run_at=NOON + HOUR)
    app.jobs.reschedule(job, **moved)
    assert app.get(job).run_at == due


@rule("M30", "M87")
@pytest.mark.parametrize("moved", [{"priority": 5}, {"queue": "other"}, {"run_at": NOON - HOUR}])
def test_a_due_job_goes_to_the_end_of_its_line_where_workers_look(
    app: rota.App, shared: Connection, moved: dict[str, Any]
) -> None:
    set_clock(shared, NOON - HOUR)
    [job] = insert(shared)
    set_clock(shared, NOON)
    app.jobs.reschedule(job, **moved)
    found = app.get(job)
    assert found.run_at == NOON
    hand = Hand(shared, queues=["default", "other"], priorities=[0, 5])
    claimed = hand.claim(after=NOON - timedelta(seconds=1)).jobs  # its frontiers have passed 11:00
    assert [taken.id for taken in claimed] == [job]


@rule("M81", "M87")
def test_workers_are_woken_for_jobs_that_are_due_now_in_the_queue_to_which_they_moved(
    app: rota.App, connection: Connection, second: Connection
) -> None:
    Hand(connection).run(ops.request_notify("kind waits", ["default", "other"], 60.0))
    later, due = insert(connection, 2, run_at=NOON + 900_000 * HOUR)
    second.execute(f'listen "{Statements("rota").worker_channel("waits")}"'.encode())
    app.jobs.reschedule(later, delay="1h")
    app.jobs.reschedule(due, delay="0s", queue="other")
    app.jobs.reschedule(later, queue="other")
    app.jobs.reschedule(later, delay="0s")
    heard = [found.payload for found in second.notifies(timeout=30, stop_after=2)]
    assert heard == ["other", "other"]


@rule("M36")
@pytest.mark.parametrize(
    ("attempted", "expires_at"), [(False, NOON + 6 * HOUR), (True, NOON + 7 * HOUR)]
)
def test_with_the_time_moves_the_expiry_so_that_the_job_has_as_long_to_start(
    app: rota.App, connection: Connection, attempted: bool, expires_at: datetime
) -> None:
    # Made at 12:00 to run at 13:00 and to start by 15:00.
    set_clock(connection, NOON)
    [job] = insert(connection, run_at=NOON + HOUR, expires_at=NOON + 3 * HOUR)
    if attempted:
        set_clock(connection, NOON + HOUR)
        hand = Hand(connection)
        hand.settle(*((claimed, FAIL) for claimed in hand.claim().jobs))
    assert app.jobs.reschedule(job, priority=3) is (Status.FAILED if attempted else Status.QUEUED)
    assert app.get(job).expires_at == NOON + 3 * HOUR, "only with the time"
    app.jobs.reschedule(job, run_at=NOON + 4 * HOUR)
    found = app.get(job)
    assert (found.run_at, found.expires_at) == (NOON + 4 * HOUR, expires_at)
    assert _detail(connection)["to"] == {
        "run_at": found.run_at.isoformat(),
        "expires_at": expires_at.isoformat(),
    }


@rule("M30", "M87")
def test_of_a_claim_and_a_reschedule_one_wins_and_nothing_is_half_done(
    database: str, connection: Connection, second: Connection
) -> None:
    [first, other] = insert(connection, 2)
    request = ops.ActionRequest(Action.RESCHEDULE, "ann", moved=ops.Moved(queue="other"))
    with psycopg.connect(database) as worker:
        [claimed] = Hand(worker).claim(1).jobs
        assert claimed.id == first
        before = _row(second, first)
        [answer] = after_it_waited(
            connection, second, lambda: Hand(second).run(ops.act(request, [first])), worker.commit
        )
    assert (answer.answer, answer.status) == ("refused", "running")
    after = _row(second, first)
    assert (after["queue"], after["run_at"]) == (before["queue"], before["run_at"])
    assert fetch(second, "select count(*) from rota.action") == (0,)
    with psycopg.connect(database) as person:
        Hand(person).run(ops.act(request, [other]))
        assert Hand(connection).claim().jobs == [], "its row is locked"
        person.commit()
    assert Hand(connection).claim().jobs == [], "it is in the other queue"
    [moved] = Hand(connection, queues=["other"]).claim().jobs
    assert moved.id == other


@rule("M87")
async def test_many_move_by_a_filter_and_those_that_run_are_refused(
    app: rota.App, shared: Connection
) -> None:
    running, *waiting = insert(shared, 3)
    Hand(shared).claim(1)
    insert(shared, job_type="u")
    done = await app.jobs.areschedule_many(
        job_type="t", queue="default", to_queue="night", delay="1h", why="too much by day", by="ann"
    )
    assert (done.done, done.refused) == (waiting, {})
    assert shared.execute("select distinct queue from rota.job order by 1").fetchall() == [
        ("default",), ("night",),
    ]  # fmt: skip
    refused = (await app.jobs.areschedule_many(ids=[running], priority=1)).refused
    assert (
        list(refused) == [running] and "running, not queued, waiting or failed" in refused[running]
    )


@rule("M10", "M15", "M87")
def test_a_move_that_cannot_be_meant_is_refused(app: rota.App, shared: Connection) -> None:
    [job] = insert(shared)
    before = _row(shared, job)
    wrong: list[dict[str, Any]] = [
        {},
        {"run_at": NOON, "delay": "1m"},
        {"run_at": datetime.fromisoformat("2026-01-14")},
        {"run_at": datetime(9000, 1, 1, tzinfo=UTC)},
        {"delay": "-1m"},
        {"priority": 101},
        {"queue": ""},
    ]
    for moved in wrong:
        with pytest.raises(rota.UsageError):
            app.jobs.reschedule(job, **moved)
    for in_sql in (
        "",
        ", p_run_at => now(), p_delay => '1 h'",
        ", p_run_at => 'infinity'",
        ", p_delay => '-1 h'",
        ", p_priority => 101",
        ", p_queue => ''",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="nothing was"):
            shared.execute(f"select * from rota.job_reschedule('{{{job}}}'{in_sql})".encode())
    assert _row(shared, job) == before


@rule("M20", "M87")
async def test_a_reschedule_joins_the_transaction_of_its_connection(
    database: str, app: rota.App, connection: Connection
) -> None:
    [job] = insert(connection, run_at=NOON + 900_000 * HOUR)
    async with await psycopg.AsyncConnection.connect(database) as own:
        await app.jobs.areschedule(job, delay="0s", connection=own)
        await own.rollback()
    assert (await app.aget(job)).run_at == NOON + 900_000 * HOUR
    async with await psycopg.AsyncConnection.connect(database) as kept:
        await app.jobs.areschedule(job, run_at=NOON + 800_000 * HOUR, connection=kept)
    assert (await app.aget(job)).run_at == NOON + 800_000 * HOUR
