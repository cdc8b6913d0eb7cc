"""One job per (job type, key): under concurrency, after the end, through renames, from any
producer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import rota
from rota.model.settle import Transition
from tests.store.work import (
    CANCEL,
    FAIL,
    GIVE_UP,
    SNOOZE,
    SUCCEED,
    Connection,
    Hand,
    after_it_waited,
)
from tests.support.rules import rule


@pytest.fixture
def send(app: rota.App) -> rota.JobType[[], [], None]:
    @app.job("send")
    def send() -> None: ...

    return send


Send = rota.JobType[[], [], None]


def _concurrently(
    database: str,
    connection: Connection,
    send: Send,
    end: Callable[[Connection], None],
    **options: Any,
) -> tuple[rota.Enqueued, rota.Enqueued]:
    """Enqueue the same key from two transactions; return both results.

    The first ends as asked once the second waits for it.
    """
    with psycopg.connect(database) as first, psycopg.connect(database, **options) as second:
        second.execute("select 1")
        made = send.using(connection=first, key="k").enqueue()
        again = send.using(connection=second, key="k").enqueue
        result = after_it_waited(connection, second, again, lambda: end(first))
        second.commit()
    return made, result


@rule("M51")
@pytest.mark.parametrize(
    "options", [{}, {"autocommit": True}], ids=["in a transaction", "autocommit"]
)
def test_a_second_enqueue_waits_for_the_first_and_gets_its_id(
    database: str, connection: Connection, send: Send, options: dict[str, Any]
) -> None:
    first, second = _concurrently(database, connection, send, Connection.commit, **options)
    assert second == rota.Enqueued(first.id, False, "queued")
    assert connection.execute("select id from rota.job").fetchall() == [(first.id,)]


@rule("M51")
def test_when_the_first_rolls_back_the_second_is_inserted(
    database: str, connection: Connection, send: Send
) -> None:
    first, second = _concurrently(database, connection, send, Connection.rollback)
    assert second.created and second.id != first.id
    assert connection.execute("select id from rota.job").fetchall() == [(second.id,)]


KEPT_FOR = (
    "select i.expires_at - h.finished_at from rota.idempotency i join rota.job_history h on h.id = "
    "i.job"
)


@rule("M51")
def test_a_key_is_held_through_every_status_and_after_success(
    shared: Connection, send: Send
) -> None:
    hand = Hand(shared, types=["send"])
    ends = {"succeeded": SUCCEED, "failed": FAIL, "dead": GIVE_UP, "queued": SNOOZE}
    first = {end: send.using(key=end).enqueue() for end in ends}
    hand.settle(*zip(hand.claim().jobs, ends.values(), strict=True))
    for end, job in first.items():
        assert send.using(key=end).enqueue() == rota.Enqueued(job.id, False, end)
    held: dict[str, bool] = dict(
        shared.execute("select key, expires_at is null from rota.idempotency").fetchall()
    )
    assert held == {"succeeded": False, "failed": True, "dead": True, "queued": True}
    assert shared.execute(KEPT_FOR).fetchall() == [(timedelta(days=90),)]


def end_all(connection: Connection, transition: Transition = SUCCEED) -> None:
    hand = Hand(connection, types=["send", "charge", "charge_card"])
    hand.settle(*((job, transition) for job in hand.claim().jobs))


@rule("M51")
def test_a_cancelled_job_frees_its_key(shared: Connection, send: Send) -> None:
    first = send.using(key="k").enqueue()
    end_all(shared, CANCEL)
    assert shared.execute("select from rota.idempotency").rowcount == 0
    second = send.using(key="k").enqueue()
    assert second.created and second.id != first.id


@rule("M51")
def test_a_key_lives_as_long_after_the_end_as_its_type_says(
    app: rota.App, shared: Connection
) -> None:
    @app.job("send", unique=rota.Unique(ttl="1h"))
    def handler() -> None: ...

    app.sync()
    first = handler.using(key="k").enqueue()
    end_all(shared)
    assert shared.execute(KEPT_FOR).fetchall() == [(timedelta(hours=1),)]
    assert not handler.using(key="k").enqueue().created
    shared.execute("update rota.idempotency set expires_at = now() - interval '1 s'")
    again = handler.using(key="k").enqueue()
    assert again.created and again.id != first.id
    assert shared.execute("select job, expires_at from rota.idempotency").fetchall() == [
        (again.id, None)
    ]
    assert handler.using(key="k").enqueue() == rota.Enqueued(again.id, False, "queued")


@rule("M51")
def test_of_two_producers_one_takes_an_expired_key(
    database: str, connection: Connection, send: Send
) -> None:
    send.using(key="k").enqueue()
    end_all(connection)
    connection.execute("update rota.idempotency set expires_at = now() - interval '1 s'")
    first, second = _concurrently(database, connection, send, Connection.commit)
    assert second == rota.Enqueued(first.id, False, "queued")


@rule("M12", "M51")
def test_a_renamed_type_cannot_enqueue_twice(database: str, connection: Connection) -> None:
    before, after = rota.App(database, release="1"), rota.App(database, release="2")

    @before.job("charge_card")
    def charge_card() -> None: ...

    @after.job("charge", aliases=("charge_card",))
    def charge() -> None: ...

    before.sync()
    first = charge_card.using(key="invoice:1").enqueue()
    after.sync()
    knows = connection.execute("select job_types from rota.release where name = '2'").fetchone()
    assert knows == (["charge", "charge_card"],), "the old release leaves it what it cannot read"
    assert charge.using(key="invoice:1").enqueue() == rota.Enqueued(first.id, False, "queued")
    # A producer of the old release, and one in SQL, keep using the old name.
    second = charge_card.using(key="invoice:2").enqueue()
    assert charge.using(key="invoice:2").enqueue() == rota.Enqueued(second.id, False, "queued")
    for name in ("charge", "charge_card"):
        assert (
            connection.execute(
                "insert into rota.job (job_type, idempotency_key) values (%s, 'invoice:2')", [name]
            ).rowcount
            == 0
        )
    end_all(connection)
    assert charge.using(key="invoice:1").enqueue() == rota.Enqueued(first.id, False, "succeeded")
    # One that was taken while the new name was being declared, and has expired.
    late = "insert into rota.idempotency values ('charge_card', 'invoice:3', 1, rota.clock())"
    connection.execute(late)
    assert charge.using(key="invoice:3").enqueue().created
    before.close()
    after.close()


@rule("M51")
def test_keys_differ_by_case_accent_and_space_and_belong_to_their_type(
    app: rota.App, send: Send
) -> None:
    @app.job("other")
    def other() -> None: ...

    keys = ["k", "K", "k ", "ḱ", "k" * 255]
    done = [job_type.using(key=key).enqueue() for job_type in (send, other) for key in keys]
    assert all(job.created for job in done)
