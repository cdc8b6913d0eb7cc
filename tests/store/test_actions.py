"""What people do to jobs: every status and every action, what becomes of rows and keys, and races
with workers and with each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

import rota
from rota.client.requests import sort_errors
from rota.client.selection import find_jobs
from rota.model.job import Action, Status
from rota.model.states import TRANSITIONS, takes
from rota.store import ops
from rota.store.statements import Statements
from tests.store.work import (
    BEGINNING,
    CANCEL,
    FAIL,
    GIVE_UP,
    HAND_BACK,
    SUCCEED,
    Connection,
    Hand,
    act,
    after_it_waited,
    expire,
    fetch,
    insert,
)
from tests.support.rules import rule

PROGRESS = '{"done": 2, "total": null, "note": null, "at": "2026-01-01T00:00:00+00:00"}'
ROW = "select to_jsonb(j) from rota.jobs j where id = "


def done(
    connection: Connection, action: Action, *ids: int, why: str | None = "because"
) -> list[tuple[str, str | None]]:
    return [
        (answer.answer, answer.status)
        for answer in Hand(connection).run(act(action, *ids, why=why))
    ]


def requeued(connection: Connection, job: int) -> int:
    [answer] = Hand(connection).run(act(Action.REQUEUE, job))
    assert answer.answer == "done" and answer.new_id is not None
    return answer.new_id


def stand(connection: Connection, status: Status) -> int:
    """Make a job of this status, the way jobs get there."""
    [job] = insert(connection)
    if status is Status.QUEUED:
        return job
    hand = Hand(connection)
    claimed = next(found for found in hand.claim().jobs if found.id == job)
    ends = {
        Status.WAITING: HAND_BACK, Status.FAILED: FAIL, Status.DEAD: GIVE_UP,
        Status.SUCCEEDED: SUCCEED, Status.CANCELLED: CANCEL,
    }  # fmt: skip
    if status in ends:
        hand.settle((claimed, ends[status]))
    if status is Status.WAITING:
        connection.execute("update rota.job set status = 'waiting' where id = %s", [job])
    return job


def dead(connection: Connection, **columns: Any) -> int:
    [job] = insert(connection, **columns)
    hand = Hand(connection, types=[str(columns.get("job_type", "t"))])
    hand.settle(*((claimed, GIVE_UP) for claimed in hand.claim().jobs if claimed.id == job))
    return job


# Every status, every action


@rule("M87", "M32")
@pytest.mark.parametrize("action", [Action.RETRY, Action.DISCARD])
def test_a_job_that_begins_after_a_filter_found_it_keeps_its_worker(
    shared: Connection, action: Action
) -> None:
    hand = Hand(shared)
    insert(shared, 2)
    for claimed in hand.claim().jobs:
        hand.settle((claimed, FAIL))
    shared.execute("update rota.job set run_at = now()")
    request = ops.ActionRequest(action, "ann")
    request, ids = hand.run(find_jobs(request, {"job_type": "t"}))
    [began] = hand.claim(1).jobs
    answers, _ = hand.run(ops.act_on_many(request, ids))
    assert {answer.job: answer.answer for answer in answers} == {
        id_: "refused" if id_ == began.id else "done" for id_ in ids
    }
    [refusal] = sort_errors(action, answers, {}).values()
    assert "it began meanwhile" in str(refusal) and "running or" not in str(refusal)
    hand.settle((began, SUCCEED))  # it is still its worker's
    named, ids = hand.run(find_jobs(request, {"status": "running"}))
    assert named.running


@rule("M44", "M87")
@pytest.mark.parametrize("action", Action)
def test_what_an_action_makes_of_a_job_is_what_the_table_says(
    app: rota.App, shared: Connection, action: Action
) -> None:
    calls: dict[Action, Callable[..., Any]] = {
        Action.RETRY: app.retry,
        Action.RESCHEDULE: partial(app.jobs.reschedule, priority=0),
        Action.CANCEL: app.cancel,
        Action.DISCARD: app.jobs.discard,
        Action.REQUEUE: partial(app.retry, fresh=True),
        Action.ARCHIVE: app.jobs.archive,
        Action.RUN_AGAIN: partial(app.retry, again=True),
    }
    doing = calls[action]
    for status in Status:
        job = stand(shared, status)
        before = fetch(shared, f"{ROW}{job}")[0]
        assert before["status"] == status
        becomes = TRANSITIONS.get((status, action.value))
        if becomes is None:
            assert done(shared, action, job) == [("refused", status)]
            with pytest.raises(rota.WrongStatus) as refused:
                doing(job, why="because")
            told = (refused.value.job, refused.value.status, refused.value.wanted)
            assert told == (job, status, takes(action))
            assert fetch(shared, f"{ROW}{job}")[0] == before
            assert fetch(shared, f"select count(*) from rota.action where job = {job}") == (0,)
            continue
        asked = (status, action) == (Status.RUNNING, Action.CANCEL)
        requeued = status is Status.DEAD and action in (Action.RETRY, Action.REQUEUE)
        doing(job, why="because")
        after = fetch(shared, f"{ROW}{job}")[0]
        assert after["status"] == (status if asked else becomes)
        assert (after["finished_at"] is not None) == (
            (becomes.is_over and not asked) or requeued or action is Action.ARCHIVE
        )
        verb = "requeue" if requeued else action.value
        assert fetch(shared, f"select verb, why from rota.action where job = {job}") == (
            verb,
            "because",
        )
        if action is Action.RUN_AGAIN:
            assert after == before
        shared.execute("delete from rota.job")
    with pytest.raises(rota.JobNotFound):
        doing(10**15, why="because")


@rule("M87")
def test_each_action_records_who_and_why(app: rota.App, shared: Connection) -> None:
    first, second, third = insert(shared, 3)
    app.jobs.discard(
        first, by="ann\n \x1b[31m on call", why="no such\x00 customer, password=hunter2"
    )
    app.jobs.discard(second)
    shared.execute(
        "select rota.job_discard(array[%s::bigint], E'by\\u202e hand\\nor so, password=hunter2')",
        [third],
    )
    said = shared.execute("select by, why, verb, detail from rota.action order by job").fetchall()
    assert said[0] == (
        "ann [31m on call",
        "no such customer, password=***",
        "discard",
        {"was": "queued"},
    )
    assert said[1][0].count("@") == 1 and said[1][1] is None
    assert said[2][:2] == (shared.info.user, "by hand or so, password=***")
    log = app.jobs.log(limit=2)
    assert [(entry.job, entry.verb, entry.by) for entry in log] == [
        (third, "discard", shared.info.user),
        (second, "discard", said[1][0]),
    ]
    assert app.jobs.log(since=log[0].at + timedelta(seconds=1)) == []
    assert [entry.detail for entry in app.jobs.log(since="1h")] == [{"was": "queued"}] * 3


# Retry now


@rule("M87")
def test_a_job_that_would_wait_is_due_now_and_one_that_is_due_keeps_its_place(
    shared: Connection,
) -> None:
    [later] = insert(shared, run_at="2100-01-01")
    [due] = insert(shared)
    shared.execute("update rota.job set mismatched_releases = '{1}'")
    before = fetch(shared, f"select run_at from rota.job where id = {due}")
    assert done(shared, Action.RETRY, later, due) == [("done", "queued")] * 2
    assert fetch(shared, f"select run_at from rota.job where id = {due}") == before
    assert [job.id for job in Hand(shared).claim().jobs] == [due, later]


@rule("M32", "M33", "M87")
@pytest.mark.parametrize(
    ("recorded", "losses", "attempts", "left", "said"),
    [
        (None, None, 0, 1, "; not counted, because it may not have begun"),
        (False, 1, 0, 1, "; not counted, because it had not begun"),
        (True, None, 1, 1, ""),
        (None, 1, 0, 2, "; not counted, because another job may be at fault"),
    ],
    ids=["perhaps in the buffer", "not begun", "begun", "beside other suspects"],
)
def test_a_running_job_is_taken_from_its_worker_and_charged_as_a_lost_one(
    shared: Connection,
    recorded: bool | None,
    losses: int | None,
    attempts: int,
    left: int,
    said: str,
) -> None:
    insert(shared, idempotency_key="k", losses=losses)
    late, hand = Hand(shared, "late"), Hand(shared)
    [lost] = late.claim().jobs
    shared.execute("update rota.job set start_recorded = %s", [recorded])
    assert done(shared, Action.RETRY, lost.id, why="hangs") == [("done", "queued")]
    assert late.renew(lost) == set()
    for late_end in (SUCCEED, FAIL, GIVE_UP, CANCEL):
        assert late.settle((lost, late_end)) == {}
    assert fetch(shared,
        "select status, attempts, losses, claims, run_at <= rota.clock(), locked_by from "
        "rota.jobs") == (
        "queued", attempts, left if recorded is not False else losses, 2, True, None,
    )  # fmt: skip
    assert fetch(shared, (
        "select worker, claim, outcome, error_type, message, verdict_rule, next_run_at is not null "
        "from rota.attempt"
    )) == (
        "late", 1, "queued", "LeaseTaken",
        f"taken from its worker to be retried by tester: hangs{said}", "retry", True,
    )  # fmt: skip
    claimed = hand.claim()
    [again] = claimed.jobs
    assert (again.attempts, again.claims, set(claimed.suspects)) == (attempts + 1, 3, set())
    assert late.settle((lost, SUCCEED)) == {}
    assert set(hand.settle((again, SUCCEED))) == {lost.id}


@rule("M11", "M87")
def test_a_running_job_with_a_request_to_cancel_is_cancelled_not_retried(
    shared: Connection,
) -> None:
    insert(shared, idempotency_key="k")
    [job] = Hand(shared).claim().jobs
    assert done(shared, Action.CANCEL, job.id, why="not wanted") == [("requested", "running")]
    assert done(shared, Action.RETRY, job.id) == [("cancelled", "cancelled")]
    assert fetch(shared, "select outcome, next_run_at from rota.attempt") == ("cancelled", None)
    assert fetch(shared, "select count(*) from rota.idempotency") == (0,)


@rule("M81", "M87")
@pytest.mark.parametrize("action", [Action.RETRY, Action.DISCARD])
def test_the_worker_that_loses_its_job_and_a_waiting_one_are_notified(
    connection: Connection, second: Connection, action: Action
) -> None:
    insert(connection)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.run(ops.request_notify("kind waits", ["default"], 60.0))
    channel_of = Statements("rota").worker_channel
    for worker in ("waits", "hand"):
        second.execute(f'listen "{channel_of(worker)}"'.encode())
    done(connection, action, job.id)
    heard = [
        (found.channel, found.payload)
        for found in second.notifies(timeout=30, stop_after=2 if action is Action.RETRY else 1)
    ]
    told = [(channel_of("waits"), "default"), (channel_of("hand"), "")]
    assert set(heard) == set(told[action is Action.DISCARD :])


# Bury


@rule("M43", "M44", "M87")
@pytest.mark.parametrize("status", [Status.QUEUED, Status.WAITING, Status.FAILED, Status.RUNNING])
def test_a_discarded_job_is_dead_says_why_and_keeps_its_key(
    shared: Connection, status: Status
) -> None:
    job = stand(shared, status)
    shared.execute("update rota.job set idempotency_key = 'k'")
    shared.execute("insert into rota.idempotency (job_type, key, job) values ('t', 'k', %s)", [job])
    assert done(shared, Action.DISCARD, job, why="the partner is gone") == [("done", "dead")]
    assert fetch(shared,
        "select status, last_error, error_type, verdict, verdict_rule, failed_at is not null, "
        "locked_by from rota.jobs") == (
        "dead", "discarded by tester: the partner is gone", "Discarded", "fatal", "discard", True,
        None,
    )  # fmt: skip
    assert insert(shared, idempotency_key="k") == []
    discarded = shared.execute(
        "select outcome from rota.attempt where error_type = 'Discarded'"
    ).fetchall()
    assert discarded == ([("dead",)] if status is Status.RUNNING else [])


# Requeue


@rule("M44", "M51")
def test_a_requeued_job_is_a_new_one_that_goes_on_and_the_old_one_keeps_its_content(
    shared: Connection,
) -> None:
    job = dead(
        shared, idempotency_key="k", payload='{"a": [1, "\\u2603", null]}', payload_version=3,
        meta='{"from": "shop"}', max_attempts=4, timeout="90 s",
        schedule="nightly", scheduled_for="2026-01-01", progress=PROGRESS, queue="default",
        priority=0,
    )  # fmt: skip
    before = fetch(shared, "select to_jsonb(j) from rota.job j")[0]
    new = requeued(shared, job)
    old = fetch(shared, f"select to_jsonb(h) from rota.job_history h where id = {job}")[0]
    assert old == before | {
        "finished_at": old["finished_at"], "result": None, "release": None,
        "resolution": {"by": "tester", "at": old["resolution"]["at"], "as": "requeued",
            "requeued_as": new},
    }  # fmt: skip
    fresh = fetch(shared, f"select to_jsonb(j) from rota.job j where id = {new}")[0]
    now = fresh["created_at"]
    kept = (
        "queue",
        "job_type",
        "payload",
        "payload_version",
        "priority",
        "max_attempts",
        "timeout",
        "idempotency_key",
        "meta",
        "schedule",
        "scheduled_for",
        "progress",
    )
    assert fresh == dict.fromkeys(fresh) | {name: before[name] for name in kept} | {
        "id": new, "origin_id": job, "status": "queued", "run_at": now, "created_at": now,
        "updated_at": now, "attempts": 0, "claims": 0,
    }  # fmt: skip
    assert shared.execute(
        "select job_type, key, job, expires_at from rota.idempotency"
    ).fetchall() == [("t", "k", new, None)]
    assert insert(shared, idempotency_key="k") == []
    assert fetch(shared, "select verb, job, by, why, detail from rota.action") == (
        "requeue", job, "tester", None, {"as": "requeued", "requeued_as": new},
    )  # fmt: skip
    hand = Hand(shared)
    [again] = hand.claim().jobs
    hand.settle((again, GIVE_UP))
    third = requeued(shared, new)
    assert fetch(shared, f"select origin_id, idempotency_key from rota.job where id = {third}") == (
        job,
        "k",
    )
    [last] = hand.claim().jobs
    hand.settle((last, SUCCEED))
    assert fetch(shared, "select job, expires_at is not null from rota.idempotency") == (
        third,
        True,
    )


@rule("M36", "M44")
@pytest.mark.parametrize("claimed", [True, False])
def test_a_requeued_job_has_as_long_to_begin_as_the_first_one_had(
    shared: Connection, claimed: bool
) -> None:
    job = dead(shared) if claimed else insert(shared)[0]
    began_h = 5 if claimed else 9
    shared.execute(
        "update rota.job set created_at = rota.clock() - make_interval(hours => %s), run_at = "
        "rota.clock() - interval '5 h', expires_at = rota.clock() - interval '3 h'",
        [began_h],
    )
    if not claimed:
        Hand(shared).run(ops.expire("w", BEGINNING, 0, 10))
    new = requeued(shared, job)
    assert fetch(shared, f"select expires_at - run_at from rota.job where id = {new}") == (
        timedelta(hours=2),
    )


@rule("M44")
def test_the_second_of_two_requeues_learns_the_job_that_the_first_made(
    database: str, app: rota.App, connection: Connection, second: Connection
) -> None:
    job = dead(connection, idempotency_key="k")
    with psycopg.connect(database) as person:
        new = requeued(person, job)
        [lost] = after_it_waited(
            connection, second, lambda: Hand(second).run(act(Action.REQUEUE, job)), person.commit
        )
    assert lost == ops.Answer(job, "refused", "dead", new)
    assert fetch(connection, "select count(*) from rota.job") == (1,)
    with pytest.raises(
        rota.WrongStatus,
        match=(
            f"job {job} is dead and already archived; nothing was changed; it was requeued as "
            f"job {new}"
        ),
    ):
        app.retry(job)
    with pytest.raises(rota.WrongStatus, match="already archived"):
        app.jobs.archive(job, why="late")
    assert app.find(status="dead") == []


@rule("M44", "M87")
def test_a_retry_decides_on_the_status_that_it_has_locked(
    database: str, connection: Connection, second: Connection
) -> None:
    insert(connection, 2)
    dying, succeeding = Hand(connection).claim().jobs
    with psycopg.connect(database) as worker:
        Hand(worker).settle((dying, GIVE_UP), (succeeding, SUCCEED))
        requeued, refused = after_it_waited(
            connection,
            second,
            lambda: Hand(second).run(act(Action.RETRY, dying.id, succeeding.id)),
            worker.commit,
        )
    assert (requeued.answer, requeued.status) == ("done", "dead")
    assert refused == ops.Answer(succeeding.id, "refused", "succeeded", None)
    assert fetch(connection, "select id, status from rota.job") == (requeued.new_id, "queued")


@rule("M44", "M87")
def test_retries_of_many_do_what_fits_each_job(app: rota.App, shared: Connection) -> None:
    died, (failed, succeeded, running) = dead(shared), insert(shared, 3)
    hand = Hand(shared)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[failed], FAIL), (jobs[succeeded], SUCCEED))
    found = app.jobs.retry_many(job_type="t", why="fixed")
    assert (found.done, list(found.new_ids)) == ([died, failed], [died])
    assert app.get(running).status == "running", "only with status='running'"
    assert app.jobs.retry_many(status="running").done == [running]
    assert list(app.jobs.retry_many(ids=[succeeded]).refused) == [succeeded]
    assert app.retry(succeeded, again=True).created
    with pytest.raises(rota.WrongStatus):
        app.retry(failed, fresh=True)
    for wrong in ({"again": True, "fresh": True}, {"key": "k"}):
        with pytest.raises(rota.UsageError):
            app.retry(died, **wrong)


@rule("M44", "M51", "M87")
def test_a_run_again_with_a_payload_and_a_key_happens_once(
    app: rota.App, shared: Connection
) -> None:
    old = dead(shared, idempotency_key="k")
    held = app.retry(old, again=True, key="k")
    assert held == rota.Enqueued(old, False, "dead")
    assert app.jobs.log() == [], "nothing was done"
    new = app.retry(old, again=True, key="k2", payload={"n": 2}, by="ann")
    made = app.get(new.id)
    assert (new.created, made.idempotency_key, dict(made.payload)) == (True, "k2", {"n": 2})
    assert app.retry(old, again=True, key="k2") == rota.Enqueued(new.id, False, "queued")
    assert [(entry.verb, entry.job, entry.by) for entry in app.jobs.log()] == [
        ("run_again", old, "ann")
    ]
    with pytest.raises(psycopg.Error, match="a payload and a key are for one job"):
        shared.execute("select rota.job_run_again('{1,2}', p_key => 'k')")


@rule("M12", "M44", "M51")
def test_a_key_under_a_former_name_moves_along_and_is_freed(shared: Connection) -> None:
    first, second = dead(shared, idempotency_key="a"), dead(shared, idempotency_key="b")
    shared.execute("insert into rota.job_type (name, aliases) values ('new', '{t}')")
    shared.execute("update rota.idempotency set job_type = 'new' where key = 'a'")
    for job, key in ((first, "a"), (second, "b")):
        new = requeued(shared, job)
        assert fetch(
            shared, f"select job, expires_at from rota.idempotency where key = '{key}'"
        ) == (
            new,
            None,
        )
        assert insert(shared, job_type="new", idempotency_key=key) == []
        done(shared, Action.DISCARD, new)
        done(shared, Action.ARCHIVE, new)
    assert fetch(shared, "select count(*) from rota.idempotency") == (0,)


@rule("M51")
def test_a_key_that_another_holds_by_now_is_not_taken_from_it(shared: Connection) -> None:
    job = dead(shared, idempotency_key="k")
    shared.execute("delete from rota.idempotency")
    [holder] = insert(shared, idempotency_key="k")
    new = requeued(shared, job)
    assert fetch(shared, f"select idempotency_key from rota.job where id = {new}") == (None,)
    assert fetch(shared, "select job from rota.idempotency") == (holder,)


@rule("M44", "M45")
def test_a_fix_is_checked_against_the_type_and_both_payloads_are_kept(
    app: rota.App, shared: Connection
) -> None:
    @app.job("renamed", version=2, upgrade={1: lambda payload: payload}, aliases=("t",))
    def handler(day: int) -> None: ...

    job = dead(shared, payload='{"dy": 1}', payload_version=1)
    for wrong in ({"dy": 2}, {"day": "x"}, {}):
        with pytest.raises(rota.PayloadError):
            app.retry(job, payload=wrong)
    with pytest.raises(rota.UsageError):
        app.retry(job, payload=[1])  # type: ignore[arg-type]
    assert fetch(shared, "select count(*) from rota.action") == (0,)
    new = app.retry(job, payload={"day": 2}, why="a typo").id
    assert (
        app.get(job).payload,
        app.get(job).resolution["as"],
        app.get(job).resolution["requeued_as"],
    ) == ({"dy": 1}, "fixed", new)
    assert (app.get(new).payload, app.get(new).payload_version, app.get(new).origin_id) == (
        {"day": 2},
        2,
        job,
    )
    unknown = dead(shared, job_type="foreign", payload='{"a": 1}', payload_version=4)
    shared.execute("insert into rota.job_type (name, version) values ('foreign', 7)")
    fixed = app.retry(unknown, payload={"b": [1.5, None]}).id
    assert (app.get(fixed).payload, app.get(fixed).payload_version) == ({"b": [1.5, None]}, 7)
    for payload in (
        "'[1]'",
        "to_jsonb(repeat('x', 70000))",
        "jsonb_build_object('a', repeat('x', 70000))",
    ):
        other = dead(shared)
        with pytest.raises(psycopg.Error, match=r"nothing was (changed|written)"):
            shared.execute(
                f"select rota.job_requeue(array[{other}], p_payload => {payload})".encode()
            )
        shared.execute("delete from rota.job where status = 'dead'")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        shared.execute("select rota.job_requeue('{1, 2}', p_payload => '{}')")


# Ignore


@rule("M44", "M51")
def test_an_ignored_job_leaves_a_reason_and_frees_its_key(
    app: rota.App, shared: Connection
) -> None:
    job = dead(shared, idempotency_key="k")
    for why in ("", " \n", None):
        with pytest.raises(rota.UsageError, match="why is required"):
            app.jobs.archive(job, why=why)  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="say why"):
            shared.execute("select rota.job_archive(array[%s::bigint], %s)", [job, why])
    app.jobs.archive(job, why="the customer is gone", by="ann")
    found = app.get(job)
    assert (found.status, found.finished_at is not None, found.resolution) == (
        "dead", True, {"by": "ann", "at": found.resolution["at"], "why": "the customer is gone",
            "as": "archived"},
    )  # fmt: skip
    assert app.find(status="dead") == []
    assert insert(shared, idempotency_key="k") != []


@rule("M44", "M51")
@pytest.mark.parametrize(("action", "inserted"), [(Action.ARCHIVE, 1), (Action.REQUEUE, 0)])
def test_an_enqueue_of_the_key_meanwhile_waits_and_then_gets_it_or_is_refused(
    database: str, connection: Connection, second: Connection, action: Action, inserted: int
) -> None:
    job = dead(connection, idempotency_key="k")
    with psycopg.connect(database) as person:
        done(person, action, job)
        made = after_it_waited(
            connection, second, lambda: insert(second, idempotency_key="k"), person.commit
        )
    assert len(made) == inserted
    assert fetch(connection, "select count(*) from rota.job where idempotency_key = 'k'") == (1,)


# Run again


@rule("M87")
@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.CANCELLED, Status.DEAD])
def test_a_job_run_again_is_a_run_of_its_own(
    app: rota.App, shared: Connection, status: Status
) -> None:
    job = stand(shared, status)
    table = "job" if status is Status.DEAD else "job_history"
    shared.execute(
        f"update rota.{table} set idempotency_key = 'k', payload = '{{\"a\": 1}}', meta = '{{}}', "
        "schedule = 's',"
        f" scheduled_for = '2026-01-01', timeout = '90 s', progress = '{PROGRESS}'".encode()
    )
    new = app.retry(job, why="the file was lost", again=True)
    assert (new.created, new.status) == (True, "queued")
    found, first = app.get(new.id), app.get(job)
    begins = (found.origin_id, found.idempotency_key, found.attempts, found.progress_json)
    assert begins == (new.id, None, 0, None)
    kept = ("payload", "meta", "schedule", "scheduled_for", "timeout_s")
    assert [getattr(found, name) for name in kept] == [getattr(first, name) for name in kept]
    assert (found.payload, found.schedule, found.timeout_s) == ({"a": 1}, "s", 90)
    assert app.retry(job, again=True).id > new.id
    assert fetch(
        shared, f"select detail from rota.action where job = {job} order by id limit 1"
    ) == ({"run_again_as": new.id},)


# Many


@rule("M44", "M87")
async def test_filters_mean_the_unresolved_by_type_error_release_and_time(
    app: rota.App, shared: Connection
) -> None:
    hand = Hand(shared, types=["t", "u"])
    insert(shared, 4)
    insert(shared, job_type="u")
    *jobs, other = hand.claim().jobs
    hand.settle((jobs[0], GIVE_UP), (other, GIVE_UP))
    hand.release = "2"
    hand.settle((jobs[1], GIVE_UP), (jobs[2], FAIL))
    shared.execute(
        "update rota.job set failed_at = rota.clock() - interval '3 h', created_at = rota.clock() "
        "- interval '4 h' where id = %s",
        [jobs[0].id],
    )
    shared.execute(
        "update rota.attempt set finished_at = rota.clock() where job = %s", [jobs[0].id]
    )
    ago = (await app.aget(jobs[1].id)).created_at - timedelta(hours=1)
    assert (await app.jobs.aarchive_many(why="x", job_type="t", release="2")).done == [jobs[1].id]
    assert (await app.jobs.aarchive_many(why="x", since="2h")).done == [other.id]
    assert (await app.jobs.aarchive_many(why="x", error_type="LookupError")).done == []
    assert (await app.jobs.acancel_many(job_type="t", since=timedelta(hours=1), limit=1)).done == [
        jobs[2].id
    ]
    assert (await app.jobs.adiscard_many(status="running", job_type="t")).done == [jobs[3].id]
    assert (await app.jobs.aretry_many(status="dead", limit=1)).done == [jobs[0].id]
    assert (
        await app.jobs.aretry_many(again=True, status="cancelled", since=ago, release="2")
    ).done == []
    assert (
        await app.jobs.aretry_many(again=True, status="cancelled", since=timedelta(hours=1))
    ).done == [jobs[2].id]
    assert (await app.jobs.aretry_many(queue="default")).done == [jobs[3].id]


@rule("M44", "M87")
def test_filters_mean_a_key_a_lane_and_a_part_of_payload_or_meta_in_every_status(
    app: rota.App, shared: Connection
) -> None:
    parts = {
        "idempotency_key": "k",
        "group_key": "g",
        "payload": '{"user_id": 42, "day": "2026-01-14"}',
        "meta": '{"tenant": "acme"}',
    }
    for status in (Status.QUEUED, Status.DEAD, Status.SUCCEEDED):
        for column, value in parts.items():
            job = stand(shared, status)
            table = "rota.job_history" if status.is_over else "rota.job"
            shared.execute(f"update {table} set {column} = %s where id = %s".encode(), [value, job])
            wanted: Any = {
                "idempotency_key": {"key": "k"},
                "group_key": {"group_key": "g"},
                "payload": {"payload": {"user_id": 42}},
                "meta": {"meta": {"tenant": "acme"}},
            }[column]
            stand(shared, status)
            if status.is_over:
                wanted |= {"since": "1h"}
            many = app.jobs.cancel_many
            if status is not Status.QUEUED:
                many, wanted = app.jobs.retry_many, {"again": True, **wanted}
            assert many(status=status, **wanted).done == [job], (status, column)


@rule("M44", "M87")
def test_a_filter_that_cannot_be_meant_is_refused(app: rota.App, shared: Connection) -> None:
    insert(shared, 2)
    for verb, filters in (
        ("retry_many", {}),
        ("cancel_many", {"limit": 5}),
        ("retry_many", {"ids": [1], "job_type": "t"}),
        ("retry_many", {"ids": 1}),
        ("retry_many", {"kind": "t"}),
        ("retry_many", {"fresh": True, "status": "queued"}),
        ("retry_many", {"again": True, "job_type": "t"}),
        ("retry_many", {"again": True, "status": "succeeded"}),
        ("cancel_many", {"job_type": "t", "limit": 0}),
        ("cancel_many", {"since": datetime.fromisoformat("2026-01-14")}),
        ("cancel_many", {"status": Status.DEAD}),
        ("discard_many", {"ids": ["1"]}),
    ):
        with pytest.raises(rota.UsageError):
            getattr(app.jobs, verb)(**filters)
    assert fetch(shared, "select count(*) from rota.job where status = 'queued'") == (2,)


# Races


@rule("M20", "M87")
def test_an_action_in_a_transaction_that_is_rolled_back_never_was(
    database: str, app: rota.App, connection: Connection
) -> None:
    job, (running, queued, waiting) = dead(connection, idempotency_key="k"), insert(connection, 3)
    Hand(connection).claim(1)
    tables = (
        "select (select jsonb_agg(j order by j.id) from rota.jobs j), (select jsonb_agg(i) from "
        "rota.idempotency i),"
        " (select count(*) from rota.action)"
    )
    before = fetch(connection, tables)
    with psycopg.connect(database) as own:
        app.retry(job, connection=own)
        app.retry(running, connection=own)
        app.cancel(waiting, connection=own)
        app.jobs.discard(queued, connection=own)
        with pytest.raises(rota.WrongStatus):
            app.jobs.archive(job, why="x", connection=own)
        assert fetch(own, "select count(*) from rota.action") == (4,)
        own.rollback()
    assert fetch(connection, tables) == before


@rule("M32", "M87")
@pytest.mark.parametrize("action", [Action.RETRY, Action.DISCARD, Action.CANCEL])
def test_of_an_action_and_the_end_of_an_attempt_one_wins(
    database: str, connection: Connection, second: Connection, action: Action
) -> None:
    insert(connection, 2)
    first, other = Hand(connection).claim().jobs
    with psycopg.connect(database) as finisher:
        Hand(finisher).settle((first, SUCCEED))
        assert after_it_waited(
            connection, second, lambda: done(second, action, first.id), finisher.commit
        ) == [("refused", "succeeded")]
    with psycopg.connect(database) as person:
        done(person, action, other.id)
        written = after_it_waited(
            connection, second, lambda: Hand(second).settle((other, SUCCEED)), person.commit
        )
    # A cancel only asks the job's worker, which was faster.
    assert set(written) == ({other.id} if action is Action.CANCEL else set())
    asked = connection.execute("select id, cancel_requested_at is not null from rota.job_history")
    assert asked.fetchall() == [(first.id, False), *[(job, True) for job in written]]


@rule("M33", "M87")
def test_the_reaper_and_a_person_take_a_job_once(database: str, connection: Connection) -> None:
    insert(connection)
    [job] = Hand(connection).claim().jobs
    expire(connection)
    with psycopg.connect(database) as person:
        done(person, Action.RETRY, job.id)
        assert Hand(connection).reap() == []
    assert Hand(connection).reap() == []
    assert fetch(connection, "select claims, losses from rota.job") == (2, 1)


@rule("M30", "M32", "M44", "M87")
def test_actions_against_workers_and_each_other_never_deadlock_and_lose_no_job(
    database: str, connection: Connection
) -> None:
    ids = insert(connection, 300)
    connection.execute("update rota.job set idempotency_key = id::text")
    connection.execute(
        "insert into rota.idempotency (job_type, key, job) select job_type, idempotency_key, id "
        "from rota.job"
    )

    def meddle(seed: int) -> int:
        chance, repeated = random.Random(seed), 0
        with psycopg.connect(database, autocommit=True) as own:
            for _ in range(15):
                known = [
                    row[0] for row in own.execute("select id from rota.job order by id").fetchall()
                ]
                action = chance.choice([*Action])
                chosen = chance.sample(known, min(20, len(known)))
                if action is Action.RUN_AGAIN:
                    chosen = chosen[:2]
                answers = Hand(own).run(act(action, *chosen, why="x")) if chosen else []
                repeated += sum(
                    1
                    for answer in answers
                    if action is Action.RUN_AGAIN and answer.answer == "done"
                )
        return repeated

    def work(seed: int) -> int:
        chance = random.Random(seed)
        with psycopg.connect(database, autocommit=True) as own:
            hand = Hand(own, f"hand {seed}")
            for _ in range(15):
                jobs = hand.claim(20).jobs
                hand.renew(*jobs)
                hand.settle(
                    *(
                        (job, chance.choice([SUCCEED, FAIL, GIVE_UP]))
                        for job in chance.sample(jobs, len(jobs))
                    )
                )
        return 0

    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(meddle, 1),
            pool.submit(meddle, 2),
            pool.submit(work, 3),
            pool.submit(work, 4),
        ]
        repeated = sum(run.result(300) for run in runs)
    # Every job is there once; those that were requeued form chains, at whose end there is one.
    ends = (
        "select count(*), count(distinct origin_id) from rota.jobs where resolution ->> "
        "'requeued_as' is null"
    )
    assert fetch(connection, ends) == (len(ids) + repeated,) * 2
    held = (
        "select count(*) from rota.idempotency i join rota.jobs j on j.id = i.job where j.status = "
        "'cancelled' or j.resolution is not null"
    )
    assert fetch(connection, held) == (0,)
