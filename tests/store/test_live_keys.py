"""Keys that are held until their jobs have succeeded or are dead: one export at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Literal

import pytest

import rota
from tests.store.work import FAIL, GIVE_UP, HAND_BACK, SNOOZE, SUCCEED, Connection, Hand, expire
from tests.support.rules import rule

Export = rota.JobType[[int], [int], None]


@pytest.fixture
def export(app: rota.App) -> Export:
    @app.job("t", unique=rota.Unique(lambda: "k", scope="live"), on_lost="dead")
    def export(number: int) -> None: ...

    app.sync()
    return export


def reap(hand: Hand) -> None:
    hand.start(*hand.claim().jobs)
    expire(hand.connection)
    hand.reap()


def other() -> None: ...


DISCARD = "select rota.job_discard(array(select id from rota.job), 'no', 'me')"
ENDS: dict[str, Callable[[Hand], Any]] = {
    "succeeds": lambda hand: hand.settle((hand.claim().jobs[0], SUCCEED)),
    "dies": lambda hand: hand.settle((hand.claim().jobs[0], GIVE_UP)),
    "is lost": reap,
    "is ended by SQL": lambda hand: hand.connection.execute(
        "select rota.fail(id, claims, 'OSError', 'no', true) "
        "from rota.claim('default', '{t}', 'shell', 1)"
    ),
    "expires": lambda hand: (
        hand.connection.execute("update rota.job set expires_at = now()"),
        hand.connection.execute("select from rota.job_expire('w', '-infinity', 0, 10)"),
    ),
    "is discarded": lambda hand: hand.connection.execute(DISCARD),
    "is discarded while it runs": lambda hand: (hand.claim(), hand.connection.execute(DISCARD)),
    "is cancelled": lambda hand: hand.connection.execute(
        "select rota.job_cancel(array(select id from rota.job), 'no')"
    ),
}


@rule("M51")
@pytest.mark.parametrize("end", ENDS)
def test_a_key_is_free_once_its_job_has_succeeded_or_is_dead(
    app: rota.App, shared: Connection, export: Export, end: str
) -> None:
    first = export.enqueue(1)
    ENDS[end](Hand(shared))
    assert app.get(first.id).status in ("succeeded", "dead", "cancelled")
    assert export.enqueue(2).created
    assert not export.enqueue(3).created


@rule("M51")
@pytest.mark.parametrize("end", [FAIL, SNOOZE, HAND_BACK], ids=lambda end: end.verb)
def test_a_job_that_runs_again_holds_its_key(
    app: rota.App, shared: Connection, export: Export, end: Any
) -> None:
    app.job("other", unique=rota.Unique(scope="pending"))(other)  # a claim looks at the keys
    app.sync()
    first = export.enqueue(1)
    hand = Hand(shared)
    [job] = hand.claim().jobs
    assert export.enqueue(2).id == first.id
    hand.settle((job, end))
    assert export.enqueue(3).id == first.id


@rule("M44", "M51")
def test_a_job_that_is_requeued_takes_its_key_again_or_is_refused(
    app: rota.App, shared: Connection, export: Export
) -> None:
    dead: list[int] = []
    for number in (1, 2, 3):
        dead.append(export.enqueue(number).id)
        app.jobs.discard(dead[-1])
    second = export.enqueue(4)
    refusal = (
        f"job {dead[0]} is dead, and job {second.id} holds its key; nothing was changed; "
        "retry it when that has finished"
    )
    with pytest.raises(rota.WrongStatus, match=refusal):
        app.retry(dead[0])
    assert app.jobs.retry_many(job_type="t", status="dead").refused[dead[0]] == refusal
    assert export.enqueue(5).id == second.id
    app.cancel(second.id)
    done = app.jobs.retry_many(ids=dead)
    assert done.done == dead[:1]
    new = done.new_ids[dead[0]]
    assert f"job {new} holds its key" in done.refused[dead[1]]
    assert app.get(new).idempotency_key == "k"
    assert export.enqueue(6) == rota.Enqueued(new, False, "queued")
    assert app.get(dead[2]).resolution_json is None


@rule("M12", "M51")
def test_a_type_that_gets_this_scope_frees_the_keys_of_jobs_that_are_dead_or_over(
    database: str, connection: Connection
) -> None:
    def declare(app: rota.App, scope: Literal["ttl", "live"]) -> Export:
        @app.job("t", unique=rota.Unique(lambda n: f"{n}", scope=scope))
        def handler(n: int) -> None: ...

        app.sync()
        return handler

    with closing(rota.App(database, release="1")) as app:
        before = declare(app, "ttl")
        before.enqueue(1)
        hand = Hand(connection)
        hand.settle((hand.claim().jobs[0], SUCCEED))
        app.jobs.discard(before.enqueue(2).id)
        before.enqueue(3)
        hand.claim()
        before.enqueue(4)
    with closing(rota.App(database, release="2")) as app:
        after = declare(app, "live")
        assert [after.enqueue(n).created for n in (1, 2, 3, 4)] == [True, True, False, False]


@rule("M51")
def test_a_ttl_needs_its_scope() -> None:
    with pytest.raises(rota.UsageError, match='with "live" a key is free when its job has succ'):
        rota.Unique(scope="live", ttl="1d")
