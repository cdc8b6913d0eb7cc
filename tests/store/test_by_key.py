"""Jobs that are cancelled and moved by their idempotency key: which job that is, by which names,
and what is answered if there is none or more than one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import rota
from rota.model.job import Action, Status
from rota.store import ops
from tests.store.test_actions import dead, requeued
from tests.store.work import SUCCEED, Connection, Hand, act, after_it_waited, fetch, insert
from tests.support.rules import rule

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@rule("M51", "M87")
async def test_the_job_that_holds_a_key_is_moved_and_cancelled_by_it_and_no_other(
    app: rota.App, shared: Connection
) -> None:
    @app.job("follow_up")
    def follow_up(user: int) -> None: ...

    mine = (await follow_up.using(key="user:1", run_at=LATER).aenqueue(1)).id
    other = (await follow_up.using(key="user:2", run_at=LATER).aenqueue(2)).id
    sooner = LATER - timedelta(days=1)
    assert await app.jobs.areschedule(key="user:1", job_type=follow_up, run_at=sooner, by="ann")
    assert (await app.aget(mine)).run_at == sooner
    assert await app.acancel(key="user:1", why="she acted first", by="ann") is Status.CANCELLED
    assert (await app.aget(mine)).cancel_reason == "she acted first"
    assert [entry.verb for entry in await app.jobs.alog()] == ["cancel", "reschedule"]
    assert ((await app.aget(other)).status, (await app.aget(other)).run_at) == ("queued", LATER)
    again = await follow_up.using(key="user:1").aenqueue(1)
    assert again.created, "a cancel frees the key"


@rule("M51", "M87")
def test_a_former_name_of_the_type_names_the_same_job_and_a_key_taken_under_it_counts(
    app: rota.App, shared: Connection
) -> None:
    insert(shared, job_type="old", idempotency_key="k")
    shared.execute("insert into rota.job_type (name, aliases) values ('new', '{old,older}')")
    for name in ("new", "old", "older", None):
        assert app.jobs.reschedule(key="k", job_type=name, priority=1) is Status.QUEUED
    assert app.cancel(key="k", job_type="older") is Status.CANCELLED


@rule("M10", "M51", "M87")
def test_a_key_of_several_types_is_refused_with_their_names_until_one_is_given(
    app: rota.App, shared: Connection
) -> None:
    [first], [second] = (insert(shared, job_type=t, idempotency_key="k") for t in "ab")
    with pytest.raises(rota.UsageError, match="several types hold the key 'k': a, b; name one"):
        app.cancel(key="k")
    assert shared.execute("select * from rota.key_cancel('k')").fetchall() == [
        (first, "ambiguous", "queued", "a"), (second, "ambiguous", "queued", "b"),
    ]  # fmt: skip
    assert fetch(shared, "select count(*) from rota.action") == (0,)
    assert shared.execute("select * from rota.key_cancel('k', 'b')").fetchall() == [
        (second, "cancelled", "cancelled", "b")
    ]
    assert app.cancel(key="k") is Status.CANCELLED, "now one type holds it"


@rule("M51")
def test_a_key_that_has_expired_makes_none_ambiguous(app: rota.App, shared: Connection) -> None:
    insert(shared, idempotency_key="k", job_type="done")
    hand = Hand(shared, types=["done"])
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    insert(shared, idempotency_key="k")
    with pytest.raises(rota.UsageError, match="done, t"):
        app.cancel(key="k")
    shared.execute("update rota.idempotency set expires_at = now() where job_type = 'done'")
    assert app.cancel(key="k") is Status.CANCELLED


@rule("M51", "M81", "M87")
def test_a_running_holder_is_asked_to_stop_and_not_moved(app: rota.App, shared: Connection) -> None:
    insert(shared, idempotency_key="k")
    Hand(shared).claim()
    with pytest.raises(rota.WrongStatus):
        app.jobs.reschedule(key="k", delay="1h")
    assert app.cancel(key="k", why="stop") is Status.RUNNING
    assert fetch(shared, "select cancel_reason from rota.job") == ("stop",)


@rule("M10", "M51", "M87")
def test_a_key_that_no_job_holds_is_not_found(app: rota.App, shared: Connection) -> None:
    insert(shared, idempotency_key="k")
    with pytest.raises(rota.errors.KeyNotFound) as any_type:
        app.cancel(key="x")
    assert (any_type.value.key, any_type.value.job_type) == ("x", None)
    with pytest.raises(rota.errors.KeyNotFound) as of_type:
        app.jobs.reschedule(key="k", job_type="u", priority=1)
    assert (of_type.value.key, of_type.value.job_type) == ("k", "u")
    for call in ("key_cancel('k', 'u')", "key_reschedule('k', 'u', p_priority => 1)"):
        said = shared.execute(f"select * from rota.{call}".encode()).fetchall()
        assert said == [(None, "not found", None, "u")]
    for wrong in ({}, {"id": 1, "key": "k"}, {"id": 1, "job_type": "t"}, {"key": ""}):
        with pytest.raises(rota.UsageError):
            app.cancel(**wrong)


@rule("M44", "M51", "M87")
@pytest.mark.parametrize("kept", [True, False])
def test_a_holder_that_is_dead_or_has_succeeded_is_refused_with_its_status(
    app: rota.App, shared: Connection, kept: bool
) -> None:
    job = dead(shared, idempotency_key="k")
    with pytest.raises(rota.WrongStatus, match="; retry or archive a dead job instead") as refused:
        app.cancel(key="k")
    assert (refused.value.job, refused.value.status) == (job, "dead")
    if not kept:
        shared.execute("insert into rota.job_type (name, history) values ('t', 'failures')")
    new = requeued(shared, job)
    hand = Hand(shared)
    hand.settle(*((claimed, SUCCEED) for claimed in hand.claim().jobs))
    with pytest.raises(rota.WrongStatus) as refused:
        app.jobs.reschedule(key="k", job_type="t", delay="1h")
    assert (refused.value.job, refused.value.status) == (new, "succeeded")


@rule("M20", "M51", "M87")
def test_a_cancel_by_key_sees_the_job_of_its_own_transaction_and_joins_it(
    database: str, app: rota.App, connection: Connection
) -> None:
    @app.job("t")
    def work() -> None: ...

    with psycopg.connect(database) as own:
        job = work.using(connection=own, key="k").enqueue().id
        with pytest.raises(rota.errors.KeyNotFound):
            app.cancel(key="k")  # nobody else sees it
        assert app.cancel(key="k", job_type=work, connection=own) is Status.CANCELLED
        with pytest.raises(rota.errors.KeyNotFound):
            app.cancel(key="k", connection=own)
        assert work.using(connection=own, key="k").enqueue().id > job
        own.rollback()
    assert fetch(connection, "select count(*) from rota.jobs") == (0,)


@rule("M51", "M87")
@pytest.mark.parametrize("action", [Action.CANCEL, Action.RESCHEDULE])
def test_a_job_that_takes_the_key_over_meanwhile_is_the_one_that_is_meant(
    database: str, connection: Connection, second: Connection, action: Action
) -> None:
    [first] = insert(connection, idempotency_key="k")
    moved = ops.Moved(queue="other") if action is Action.RESCHEDULE else None
    request = ops.ActionRequest(action, "ann", moved=moved)
    with psycopg.connect(database) as person:
        Hand(person).run(act(Action.CANCEL, first))
        [next_one] = insert(person, idempotency_key="k")
        [holder] = after_it_waited(
            connection,
            second,
            lambda: Hand(second).run(ops.act_on_key(request, "k", "t")),
            person.commit,
        )
    assert (holder.job, holder.answer, holder.job_type) == (
        next_one, "cancelled" if action is Action.CANCEL else "done", "t",
    )  # fmt: skip
