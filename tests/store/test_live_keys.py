"""Keys that are held until their jobs have succeeded or are dead: one export at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Literal

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.store.work import FAIL, GIVE_UP, HAND_BACK, SNOOZE, SUCCEED, Hand, expire
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
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


DISCARD = "select rota.job_discard(array[1], 'no', 'me')"
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
    "is discarded while it runs": lambda hand: (
        hand.claim(),
        hand.connection.execute(DISCARD),
    ),
    "is cancelled": lambda hand: hand.connection.execute("select rota.job_cancel(array[1], 'no')"),
}


@rule("M51")
@pytest.mark.parametrize("end", ENDS)
def test_a_key_is_free_once_its_job_has_succeeded_or_is_dead(
    app: rota.App, connection: Connection, export: Export, end: str
) -> None:
    first = export.enqueue(1)
    ENDS[end](Hand(connection))
    assert app.get(first.id).status in ("succeeded", "dead", "cancelled")
    assert export.enqueue(2).created
    assert not export.enqueue(3).created


@rule("M51")
@pytest.mark.parametrize("end", [FAIL, SNOOZE, HAND_BACK], ids=lambda end: end.verb)
def test_a_job_that_runs_again_holds_its_key(
    app: rota.App, connection: Connection, export: Export, end: Any
) -> None:
    app.job("other", unique=rota.Unique(scope="pending"))(other)  # a claim looks at the keys
    app.sync()
    first = export.enqueue(1)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    assert export.enqueue(2).id == first.id
    hand.settle((job, end))
    assert export.enqueue(3).id == first.id


@rule("M44", "M51")
def test_a_job_that_is_requeued_holds_no_key_and_frees_none(
    app: rota.App, connection: Connection, export: Export
) -> None:
    first = export.enqueue(1)
    Hand(connection).settle((Hand(connection).claim().jobs[0], GIVE_UP))
    second = export.enqueue(2)
    requeued = app.retry(first.id)
    assert app.get(requeued.id).idempotency_key is None
    hand = Hand(connection)
    [job] = [job for job in hand.claim().jobs if job.id == requeued.id]
    hand.settle((job, GIVE_UP))
    assert export.enqueue(3) == rota.Enqueued(second.id, False, "running")


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
        app.drain()
        app.jobs.discard(before.enqueue(2).id)
        before.enqueue(3)
        Hand(connection).claim()
        before.enqueue(4)
    with closing(rota.App(database, release="2")) as app:
        after = declare(app, "live")
        assert [after.enqueue(n).created for n in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_ttl_needs_its_scope() -> None:
    with pytest.raises(rota.UsageError, match='with "live" a key is free when its job has succ'):
        rota.Unique(scope="live", ttl="1d")
