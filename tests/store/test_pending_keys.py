"""Keys that are held until their jobs start: a change that comes while a job runs is not lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Literal, cast

import psycopg
import pytest

import rota
from tests.store.work import (
    FAIL,
    HAND_BACK,
    SNOOZE,
    SUCCEED,
    Connection,
    Hand,
    after_it_waited,
    expire,
    waits,
)
from tests.support.rules import rule
from tests.support.wait import eventually

Index = rota.JobType[[int], [int], None]


@pytest.fixture
def index(app: rota.App) -> Index:
    @app.job(
        "t",
        unique=rota.Unique(lambda: "k", on_duplicate="replace", scope="pending"),
        aliases=("old",),
    )
    def index(text: int) -> None: ...

    app.sync()
    return index


def _held(connection: Connection) -> list[int]:
    return [job for (job,) in connection.execute("select job from rota.idempotency").fetchall()]


def _claim_in_sql(connection: Connection) -> None:
    connection.execute("select rota.claim('default', '{t}', 'shell', 10)")


CLAIMS = pytest.mark.parametrize(
    "claim",
    [lambda own: Hand(own).claim(), lambda own: Hand(own).claim(refused=None), _claim_in_sql],
    ids=["python", "all or none", "sql"],
)
Claim = Callable[[Connection], Any]


@rule("M15", "M51")
@CLAIMS
def test_a_claim_gives_the_key_up_and_the_next_enqueue_makes_a_new_job(
    shared: Connection, index: Index, claim: Claim
) -> None:
    first = index.enqueue(1)
    assert index.enqueue(2) == rota.Enqueued(first.id, False, "queued", "replaced")
    assert _held(shared) == [first.id]
    claim(shared)
    assert _held(shared) == []
    second = index.enqueue(3)
    assert second.created and _held(shared) == [second.id]
    # The text stays as a record: which job was for that key?
    assert shared.execute("select distinct idempotency_key from rota.job").fetchall() == [("k",)]


@rule("M51")
def test_a_claim_leaves_the_keys_of_other_types_and_jobs(
    app: rota.App, shared: Connection, index: Index
) -> None:
    @app.job("kept")
    def kept() -> None: ...

    app.sync()
    index.enqueue(1)
    other = kept.using(key="k").enqueue()
    later = index.using(key="later", delay="1h").enqueue(2)
    assert len(Hand(shared, types=["t", "kept"]).claim().jobs) == 2
    assert sorted(_held(shared)) == [other.id, later.id]


@rule("M12", "M51")
def test_jobs_under_a_former_name_give_up_the_key_of_the_type(
    shared: Connection, index: Index
) -> None:
    shared.execute("insert into rota.job (job_type, idempotency_key) values ('old', 'k')")
    [job] = Hand(shared, types=["t", "old"]).claim().jobs
    assert job.job_type == "old" and _held(shared) == []


@rule("M12", "M51")
def test_a_type_that_gets_this_scope_frees_the_keys_of_jobs_that_have_begun(
    database: str, connection: Connection
) -> None:
    def declare(app: rota.App, key_scope: Literal["ttl", "pending"]) -> Index:
        @app.job("t", unique=rota.Unique(lambda n: f"{n}", scope=key_scope))
        def handler(n: int) -> None: ...

        app.sync()
        return handler

    with closing(rota.App(database, release="1")) as app:
        before = declare(app, "ttl")
        before.enqueue(1)
        hand = Hand(connection)
        hand.settle((hand.claim().jobs[0], SUCCEED))
        handed_back = before.enqueue(2)
        hand.settle((hand.claim().jobs[0], HAND_BACK))
        app.jobs.reschedule(handed_back.id, delay="1h")
        before.enqueue(3)
        hand.claim()
        app.jobs.discard(before.enqueue(4).id)
        waiting = before.enqueue(5)
    with closing(rota.App(database, release="2")) as app:
        after = declare(app, "pending")
        assert [after.enqueue(n).created for n in (1, 2, 3, 4, 5)] == [True] * 4 + [False]
        app.cancel(waiting.id)
        assert len(_held(connection)) == 4


@rule("M51", "M85")
def test_a_job_that_is_over_is_still_found_by_its_key(
    app: rota.App, shared: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    hand = Hand(shared)
    hand.settle((hand.claim().jobs[0], SUCCEED))
    second = index.enqueue(2)
    found = app.find(key="k", since="1h")
    assert [job.id for job in found] == [second.id, first.id]


@rule("M12", "M51")
def test_two_names_of_a_type_whose_jobs_have_the_same_key_can_become_one(
    app: rota.App, shared: Connection
) -> None:
    for name in ("old", "t"):
        shared.execute("insert into rota.job (job_type, idempotency_key) values (%s, 'k')", [name])

    @app.job("t", unique=rota.Unique(lambda: "k", scope="pending"), aliases=("old",))
    def handler() -> None: ...

    app.sync()
    shared.execute("set statement_timeout = '10s'")  # without the guard it never ends
    for _ in range(2):  # both jobs are joined, one after the other
        assert not handler.using(connection=shared).enqueue().created
        Hand(shared, types=["t", "old"]).claim(1)
    assert _held(shared) == []
    assert handler.using(connection=shared).enqueue().created


@rule("M51")
@pytest.mark.parametrize(
    "transition", [HAND_BACK, SNOOZE, FAIL], ids=["hand back", "snooze", "fail"]
)
def test_a_job_that_comes_back_holds_no_key_and_frees_none(
    shared: Connection, index: Index, transition: Any
) -> None:
    index.enqueue(1)
    hand = Hand(shared)
    hand.settle((hand.claim().jobs[0], transition))
    second = index.enqueue(2)
    assert second.created
    # Neither a further claim of the first nor its end frees the key of the second.
    shared.execute(
        "update rota.job set run_at = now() - interval '1 min' where id <> %s", [second.id]
    )
    shared.execute("update rota.job set run_at = now() + interval '1 h' where id = %s", [second.id])
    [again] = hand.claim().jobs
    assert again.id != second.id and _held(shared) == [second.id]
    hand.settle((again, SUCCEED))
    assert _held(shared) == [second.id]
    assert index.enqueue(3) == rota.Enqueued(second.id, False, "queued", "replaced")


@rule("M51", "M87")
def test_no_action_takes_the_key_again(app: rota.App, shared: Connection, index: Index) -> None:
    first = index.enqueue(1)
    hand = Hand(shared)
    hand.claim()
    expire(shared)
    hand.reap()
    second = index.enqueue(2)
    app.retry(first.id)
    app.jobs.discard(first.id)
    requeued = app.retry(first.id)
    assert app.get(requeued.id).idempotency_key is None
    assert _held(shared) == [second.id]


@rule("M51")
def test_a_job_that_dies_before_its_start_holds_no_key(
    app: rota.App, shared: Connection, index: Index
) -> None:
    discarded = index.enqueue(1)
    app.jobs.discard(discarded.id)
    assert _held(shared) == []
    late = index.enqueue(2)
    kept = index.using(key="other", delay="1h").enqueue(3)
    for job, left in ((late, [kept.id]), (kept, [])):
        shared.execute("update rota.job set expires_at = now() where id = %s", [job.id])
        shared.execute("select from rota.job_expire('w', '-infinity', 0, 10)")
        assert (app.get(job.id).status, _held(shared)) == ("dead", left)


JOINS = pytest.mark.parametrize("way", ["replace", "keep", "postpone", "bulk", "insert", "sql"])


def _enqueue(index: Index, own: Connection, way: Any) -> bool:
    """Enqueue in the transaction of a connection; return whether that made a job."""
    if way == "insert":
        insert = "insert into rota.job (job_type, idempotency_key) values ('t', 'k')"
        return own.execute(insert).rowcount == 1
    if way == "sql":
        call = (
            "select created from rota.enqueue('t', idempotency_key => 'k', on_duplicate => 'keep')"
        )
        return own.execute(call).fetchone() == (True,)
    how = "keep" if way == "bulk" else way
    using = index.using(connection=own, on_duplicate=cast(Any, how), delay="0s")
    if way == "bulk":
        return index._sender.enqueue_many([using.new(2)])[0].created
    return using.enqueue(2).created


@rule("M51")
@JOINS
def test_a_job_that_was_joined_does_not_start_before_the_joining_transaction_ends(
    database: str, connection: Connection, index: Index, way: str
) -> None:
    index.enqueue(1)
    with psycopg.connect(database) as mine, psycopg.connect(database) as other:
        assert not _enqueue(index, mine, way)
        if way not in ("replace", "postpone"):
            assert not _enqueue(index, other, way)  # joining needs no turn
            other.commit()
        assert Hand(connection).claim().jobs == []
        mine.commit()
        assert len(Hand(connection).claim().jobs) == 1


@rule("M51")
@JOINS
def test_a_change_that_meets_a_claim_makes_a_new_job(
    database: str, connection: Connection, index: Index, way: str
) -> None:
    first = index.enqueue(1)
    with psycopg.connect(database) as claims, psycopg.connect(database) as own:
        claims.execute("select from rota.job for update")  # a claim locks, before it frees the key

        def claim() -> None:
            [job] = Hand(claims).claim().jobs
            claims.commit()
            assert (job.id, job.payload) == (first.id, {"text": 1})

        assert after_it_waited(connection, own, lambda: _enqueue(index, own, way), claim)
        own.commit()
    [second] = _held(connection)
    assert second != first.id


@rule("M51")
@JOINS
def test_a_change_that_meets_a_claim_joins_the_job_that_has_the_key_now(
    database: str, connection: Connection, index: Index, way: str
) -> None:
    index.enqueue(1)
    with psycopg.connect(database) as claims, psycopg.connect(database) as own:
        claims.execute("select from rota.job for update")
        with ThreadPoolExecutor(1) as pool:
            created: Future[bool] = pool.submit(_enqueue, index, own, way)
            eventually(waits(connection, own))
            Hand(claims).claim()
            second = index.using(connection=claims).enqueue(3)
            claims.commit()
            assert second.created and not created.result(30)
        assert Hand(connection).claim().jobs == []
        own.commit()
    assert [job.id for job in Hand(connection).claim().jobs] == [second.id]


@rule("M51")
def test_a_bulk_keeps_the_holders_of_its_keys_from_starting_so_that_it_never_takes_one_late(
    app: rota.App, database: str, connection: Connection
) -> None:
    """A key that became free would be taken behind those of the first INSERT: two bulks with the
    same keys would deadlock."""

    @app.job("t", unique=rota.Unique(lambda n: f"{n}", scope="pending"))
    def without_aliases(n: int) -> None: ...

    app.sync()
    held = without_aliases.enqueue(1)
    common = '[{"job_type": "t", "queue": "default", "priority": 0}]'
    with psycopg.connect(database) as own:
        first_statement = "select rota.jobs_insert(null, '[{}, {}]', '{2,1}', null, null, %s)"
        [(made, none)] = [ids for (ids,) in own.execute(first_statement, [common]).fetchall()]
        assert made > held.id and none is None
        assert Hand(connection).claim().jobs == []
        own.commit()
    assert len(Hand(connection).claim().jobs) == 2


@rule("M51")
def test_two_joiners_that_then_replace_do_not_deadlock(
    database: str, connection: Connection, index: Index
) -> None:
    index.enqueue(1)
    with psycopg.connect(database) as mine, psycopg.connect(database) as other:
        for own in (mine, other):
            assert not _enqueue(index, own, "keep")
        assert not _enqueue(index, mine, "replace")
        assert not after_it_waited(
            connection, other, lambda: _enqueue(index, other, "replace"), mine.commit
        )


@rule("M51", "M87")
def test_two_joiners_that_then_reschedule_do_not_deadlock(
    app: rota.App, database: str, connection: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    with psycopg.connect(database) as mine, psycopg.connect(database) as other:
        for own in (mine, other):
            assert not _enqueue(index, own, "keep")
        mine.execute("set lock_timeout = '5s'")
        app.jobs.reschedule(first.id, delay="1h", connection=mine)  # it need not wait for the other
        move = partial(app.jobs.reschedule, first.id, delay="2h", connection=other)
        assert after_it_waited(connection, other, move, mine.commit) == "queued"
        other.commit()
    assert connection.execute("select run_at > now() + '90 min' from rota.job").fetchone() == (
        True,
    )


@rule("M51", "M87")
def test_a_joiner_that_then_replaces_does_not_deadlock_with_a_cancel(
    app: rota.App, database: str, connection: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    with psycopg.connect(database) as own, psycopg.connect(database) as canceller:
        assert not _enqueue(index, own, "keep")
        with ThreadPoolExecutor(1) as pool:
            cancelled = pool.submit(app.cancel, first.id, connection=canceller)
            eventually(waits(connection, canceller))
            assert not _enqueue(index, own, "replace")
            own.commit()
            assert cancelled.result(30) == "cancelled"
            canceller.commit()
    assert app.get(first.id).payload == {"text": 2}


@rule("M51")
def test_a_job_that_overlapping_transactions_keep_gives_its_key_up_after_ten_seconds(
    app: rota.App, database: str, connection: Connection, index: Index
) -> None:
    first = index.using(delay="1h").enqueue(1)
    overdue = "update rota.job set run_at = rota.clock() - interval '11 seconds' where id = %s"
    connection.execute(overdue, [first.id])
    assert not index.enqueue(2).created, "nobody else keeps it: it is joined"
    with psycopg.connect(database) as open_one, psycopg.connect(database) as late:
        assert not _enqueue(index, open_one, "keep")
        second = index.using(connection=late).enqueue(3)
        assert second.created
        late.commit()
        assert [job.id for job in Hand(connection).claim().jobs] == [second.id]
        open_one.commit()
    assert [job.id for job in Hand(connection).claim().jobs] == [first.id]
