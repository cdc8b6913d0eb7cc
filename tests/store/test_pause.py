"""A paused queue: what a claim takes and reports, and who is recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store import ops
from rota.store.statements import Statements
from tests.store.cost import count_blocks
from tests.store.work import FAIL, SUCCEED, Connection, Hand, insert
from tests.support.rules import rule


def actions(connection: Connection) -> list[TupleRow]:
    return connection.execute(
        "select verb, queue, by, why, detail from rota.action order by id"
    ).fetchall()


@rule("M87")
def test_a_claim_leaves_a_paused_queue_out_and_says_so_and_takes_the_others(
    app: rota.App, shared: Connection
) -> None:
    insert(shared, 2, queue="email")
    insert(shared, 2)
    hand = Hand(shared, queues=["email", "default"])
    app.queues.pause("email", why="the provider is down", by="anna")

    claimed = hand.claim()
    assert [job.queue for job in claimed.jobs] == ["default", "default"]
    assert claimed.paused == {"email"}

    assert app.queues.resume("email", by="bert")
    claimed = hand.claim()
    assert ([job.queue for job in claimed.jobs], claimed.paused) == (
        ["email", "email"],
        frozenset(),
    )
    assert actions(shared) == [
        ("pause", "email", "anna", "the provider is down", None),
        ("resume", "email", "bert", None, None),
    ]


@rule("M87")
def test_a_pause_holds_for_every_claim_that_begins_after_its_commit_and_for_none_before(
    app: rota.App, connection: Connection, second: Connection
) -> None:
    insert(connection, 3)
    hand = Hand(second)
    with connection.transaction():
        connection.execute("select rota.queue_pause('default')")
        assert len(hand.claim(1).jobs) == 1  # it does not wait for the pause either
    assert hand.claim().jobs == []
    with connection.transaction():
        connection.execute("select rota.queue_resume('default')")
        assert hand.claim().jobs == []
    assert len(hand.claim().jobs) == 2


@rule("M87")
def test_what_runs_when_its_queue_is_paused_goes_on_and_its_retry_waits(
    app: rota.App, shared: Connection
) -> None:
    done, failed = insert(shared, 2)
    hand = Hand(shared)
    jobs = {job.id: job for job in hand.claim().jobs}
    app.queues.pause("default")

    assert hand.renew(*jobs.values()) == {done, failed}
    assert hand.settle((jobs[done], SUCCEED), (jobs[failed], FAIL)).keys() == {done, failed}
    shared.execute("update rota.job set run_at = rota.clock() - interval '1 s'")
    assert hand.claim().jobs == []
    app.queues.resume("default")
    assert [job.id for job in hand.claim().jobs] == [failed]


@rule("M22", "M87")
def test_a_pause_ends_by_itself_by_the_database_s_clock(app: rota.App, shared: Connection) -> None:
    insert(shared, 1)
    hand = Hand(shared)
    pause = app.queues.pause("default", duration="1h")
    assert pause.paused_until is not None
    assert timedelta(minutes=59) < pause.paused_until - pause.paused_at <= timedelta(hours=1)
    assert hand.claim().jobs == []
    shared.execute("update rota.queue set paused_until = rota.clock()")
    claimed = hand.claim()
    assert (len(claimed.jobs), claimed.paused, app.queues.pauses()) == (1, frozenset(), [])
    assert app.queues.resume("default") is False


@rule("M87")
def test_a_second_pause_replaces_reason_and_end_and_a_resume_of_what_runs_writes_nothing(
    app: rota.App, shared: Connection
) -> None:
    app.schedules.put("s", None, app.job("t")(lambda: None).new())
    shared.execute("delete from rota.action")
    assert (app.queues.resume("never seen", force=True), app.queues.resume_all()) == (False, False)
    assert app.schedules.resume("s").paused_at is None and actions(shared) == []
    lasting: tuple[tuple[Callable[..., Any], dict[str, str]], ...] = (
        (partial(app.queues.pause, "never seen", force=True), {"duration": "1h"}),
        (app.queues.pause_all, {"duration": "1h"}),
        (partial(app.schedules.pause, "s"), {}),
    )
    for pause, lasts in lasting:
        first = pause(why="one", by="a")
        again = pause(why="two\nlines", by="b", **lasts)
        assert (again.paused_at, again.paused_by, again.paused_why) == (
            *(first.paused_at, "b", "two lines"),
        )
        assert (getattr(again, "paused_until", None) is not None) is bool(lasts)
        assert pause(by="c").paused_why is None, "an omitted reason replaces the earlier one"
        assert [(verb, by, why) for verb, _, by, why, _ in actions(shared)[-3:]] == [
            ("pause", "a", "one"), ("pause", "b", "two lines"), ("pause", "c", None)
        ]  # fmt: skip
    assert [pause.paused_until for pause in app.queues.pauses()] == [None, None]
    # In SQL it is the role that logged in who did it.
    shared.execute("select * from rota.pause_all(p_why => 'a' || chr(10) || chr(27) || 'b')")
    assert actions(shared)[-1] == ("pause", None, "postgres", "a b", None)


@rule("M87")
def test_a_pause_of_everything_stops_every_queue_and_the_scheduler_learns_it(
    app: rota.App, shared: Connection
) -> None:
    insert(shared, 1, queue="a")
    insert(shared, 1, queue="b")
    hand = Hand(shared, queues=["a", "b"])
    app.queues.pause("b")
    app.queues.pause_all(why="restore", by="anna")
    assert shared.execute("select rota.installation_paused() is not null").fetchone() == (True,)
    claimed = hand.claim()
    assert (claimed.jobs, set(claimed.paused)) == ([], {"a", "b"})
    assert [pause.queue for pause in app.queues.pauses()] == [None, "b"]

    assert app.queues.resume_all()
    assert not app.queues.resume_all()
    assert shared.execute("select rota.installation_paused() is not null").fetchone() == (False,)
    assert [job.queue for job in hand.claim().jobs] == ["a"]
    assert actions(shared)[1] == ("pause", None, "anna", "restore", None)
    assert [row[0] for row in actions(shared)] == ["pause", "pause", "resume"]


def test_what_cannot_be_a_pause_is_refused(app: rota.App, shared: Connection) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    wrong: list[dict[str, Any]] = [
        {"until": datetime(2031, 1, 1)},  # noqa: DTZ001
        {"until": "2h"},
        {"until": datetime(2020, 1, 1, tzinfo=UTC)},
        {"until": soon, "duration": "1h"},
        {"duration": 7},
        {"by": 7},
    ]
    for given in wrong:
        with pytest.raises(rota.UsageError):
            app.queues.pause("default", **given)
        with pytest.raises(rota.UsageError):
            app.queues.pause_all(**given)
    with pytest.raises(rota.UsageError):
        app.queues.pause("")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        shared.execute("select * from rota.queue_pause('')")
    assert (app.queues.pauses(), actions(shared)) == ([], [])


@rule("M87")
def test_a_queue_that_nobody_knows_is_refused_with_the_nearest_name_unless_forced(
    app: rota.App, shared: Connection
) -> None:
    refusal = r"no job, type or worker has a queue 'defalt' \(did you mean 'default'\?\); force"
    acts: list[Callable[..., object]] = [
        app.queues.pause,
        app.queues.resume,
        partial(app.queues.set_max_running, max_running=2),
    ]
    for act in acts:
        with pytest.raises(rota.UsageError, match=refusal):
            act("defalt")
        with pytest.raises(rota.UsageError, match="has a queue 'x'; force"):
            act("x")
    for call in ("queue_pause('defalt')", "queue_resume('defalt')"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=refusal):
            shared.execute(f"select rota.{call}".encode())
    assert actions(shared) == [] and app.queues.pauses() == []
    for act in acts:
        act("defalt", force=True)
    assert app.queues.resume("defalt") is False, "it has a row now"


@rule("M87")
@pytest.mark.parametrize(
    "make",
    [
        "insert into rota.job (job_type, queue, run_at) values ('t', 'q', '2999-01-01')",
        "insert into rota.job (job_type, queue, status, waits_for) values "
        "('t', 'q', 'waiting', 'job 1')",
        "select rota.worker_declare('t', queue => 'q')",
        "insert into rota.schedule (name, job_type, queue) values ('s', 't', 'q')",
        "select * from rota.claim('q', '{t}', 'w')",
    ],
)
def test_a_queue_that_somebody_knows_is_paused(
    app: rota.App, shared: Connection, make: str
) -> None:
    shared.execute(make.encode())
    assert app.queues.pause("q").queue == "q"


@rule("M87")
@pytest.mark.parametrize("of", ["type", "schedule"])
def test_a_queue_that_only_the_app_s_code_has_is_paused(app: rota.App, of: str) -> None:
    job_type = app.job("t", queue="q" if of == "type" else "default")(lambda: None)
    if of == "schedule":
        app.schedule("s", "@daily", job_type.using(queue="q").new())
    assert app.queues.pause("q").queue == "q"


@rule("M87")
def test_no_worker_is_woken_for_a_paused_queue_and_a_resume_wakes_them(
    app: rota.App, connection: Connection, second: Connection
) -> None:
    hand = Hand(connection)
    hand.run(ops.request_notify("kind waits", ["default"], 60))
    heard: list[str] = []
    second.add_notify_handler(lambda notification: heard.append(notification.payload))
    second.execute(f'listen "{Statements("rota").worker_channel("waits")}"'.encode())

    def notifications() -> list[str]:
        second.execute("select")  # earlier notifications arrive with the answer
        received, heard[:] = heard[:], []
        return received

    app.queues.pause("default")
    insert(connection, 1)
    assert notifications() == []
    app.queues.resume("default")
    assert notifications() == ["default"]
    app.queues.pause_all()
    app.queues.resume_all()
    assert notifications() == ["default"]


@rule("M14", "M87")
def test_the_check_for_a_pause_costs_a_claim_a_few_blocks_after_any_number_of_wake_up_requests(
    connection: Connection, second: Connection
) -> None:
    """Wake-up requests update the row of a queue again and again. An old snapshot keeps all its
    versions."""
    connection.execute("select rota.copy_check()")  # as a worker does before its first claim
    connection.execute("insert into rota.queue (name) values ('default')")
    second.execute("begin isolation level repeatable read")
    second.execute("select from rota.queue")
    for _ in range(500):
        connection.execute(
            "update rota.queue set notify_until = rota.clock() where name = 'default'"
        )

    claim = (
        "select * from rota.job_claim("
        "'w', '1', '{t}', '{1 min}', '{f}', '{1}', '{1}', '{1}', '{0}', '{1}', '{default}', "
        "'{0}', '{1970-01-01Z}', '{0}', '{0}', '0.25 s', false, null, false)"
    )
    # DDL of another database may flush the cache of the catalog just then.
    assert min(count_blocks(connection, claim) for _ in range(6)) <= 8
