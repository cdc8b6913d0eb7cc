"""What an enqueue does to the job that holds its key: join, replace, postpone, raise."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest
from msgspec import UNSET
from psycopg.conninfo import make_conninfo

import rota
from rota.store.statements import Statements
from tests.store.work import FAIL, GIVE_UP, SNOOZE, SUCCEED, Connection, Hand, after_it_waited
from tests.support.rules import rule

Index = rota.JobType[[int], [int], None]


@pytest.fixture
def index(app: rota.App) -> Index:
    @app.job("t", unique=rota.Unique(lambda: "k", on_duplicate="replace"))
    def index(text: int) -> None: ...

    return index


def _row(connection: Connection, *columns: str) -> tuple[Any, ...]:
    [found] = connection.execute(f"select {', '.join(columns)} from rota.job").fetchall()
    return found


@rule("M51")
def test_replace_gives_a_queued_holder_the_new_payload_and_the_call_says_so(
    app: rota.App, shared: Connection, index: Index
) -> None:
    first = index.using(meta={"by": "ann"}, expires="1h").enqueue(1)
    shared.execute(
        'update rota.job set progress = \'{"done": 1, "at": "2026-11-23T00:00:00Z"}\', '
        "mismatched_releases = '{0}', run_at = now() - interval '1 min'"
    )
    before = _row(shared, "run_at", "queue", "created_at")
    second = index.using(meta={"by": "bob"}, priority=5, max_attempts=3, queue="q").enqueue(2)
    assert second == rota.Enqueued(first.id, False, "queued", "replaced")
    assert _row(shared, "payload", "meta", "max_attempts", "priority", "expires_at") == (
        *({"text": 2}, {"by": "bob"}, 3, 5, None),
    )
    assert _row(shared, "progress", "mismatched_releases", "queue") == (None, None, before[1])
    assert _row(shared, "created_at") == (before[2],)
    # A lower priority does not lower it, and the place in the queue stays.
    shared.execute("update rota.job set run_at = %s", [before[0]])
    assert index.enqueue(3).change == "replaced"
    assert _row(shared, "priority", "run_at") == (5, before[0])
    [job] = Hand(shared, priorities=[5]).claim().jobs
    assert (job.id, job.payload) == (first.id, {"text": 3})


@rule("M51")
def test_a_replaced_job_is_due_when_the_new_call_says_and_expires_from_then(
    connection: Connection, index: Index
) -> None:
    index.using(delay="2h").enqueue(1)
    index.using(expires="10m").enqueue(2)
    run_at, expires_at, due = _row(connection, "run_at", "expires_at", "run_at <= now()")
    assert due and expires_at - run_at == timedelta(minutes=10)
    index.using(delay="1h", expires="10m").enqueue(3)
    later, expires_at = _row(connection, "run_at", "expires_at")
    assert timedelta(minutes=59) < later - run_at < timedelta(minutes=61)
    assert expires_at - later == timedelta(minutes=10)


@rule("M51")
def test_a_replaced_job_gets_the_expiry_of_its_type(app: rota.App, shared: Connection) -> None:
    @app.job("t", unique=rota.Unique(lambda: "k", on_duplicate="replace"), expires="1h")
    def handler() -> None: ...

    app.sync()
    handler.using(expires="1m").enqueue()
    shared.execute("select rota.enqueue('t', idempotency_key => 'k')")
    assert _row(shared, "expires_at > now() + interval '59 min'") == (True,)


@rule("M51")
def test_postpone_moves_a_queued_holder_and_keeps_the_first_payload(
    shared: Connection, index: Index
) -> None:
    debounced = index.using(on_duplicate="postpone")
    first = debounced.using(delay="1m", expires="1h").enqueue(1)
    assert debounced.using(delay="10m").enqueue(2) == rota.Enqueued(
        first.id, False, "queued", "postponed"
    )
    waits_long = "run_at > now() + interval '9 min'"
    assert _row(shared, "payload", waits_long, "expires_at - run_at") == (
        *({"text": 1}, True, timedelta(hours=1)),
    )
    debounced.using(delay="1s").enqueue(3)  # never sooner
    assert _row(shared, waits_long) == (True,)


@rule("M51")
def test_raise_says_which_job_has_the_key_and_inserts_nothing(
    database: str, app: rota.App, connection: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    strict = index.using(on_duplicate="raise")
    with psycopg.connect(database) as own:
        with pytest.raises(rota.KeyTaken) as taken:
            strict.using(connection=own).enqueue(2)
        assert own.execute("select 1").fetchone() == (1,)  # the transaction can continue
    error = taken.value
    assert (error.job, error.job_type, error.key, error.status, error.index) == (
        *(first.id, "t", "k", "queued", None),
    )
    assert f"job {first.id} (queued) has the idempotency key 'k'" in str(error)
    jobs = [index.using(key="new").new(3), index.new(4), strict.using(key="new").new(5)]
    for where in (UNSET, connection):
        with pytest.raises(rota.KeyTaken, match=r"\(job 2 of the list\)"):
            app.enqueue_many(jobs, connection=where)
        assert _row(connection, "payload") == ({"text": 1},)


@rule("M51")
@pytest.mark.parametrize("before", [3, 1500])
def test_a_bulk_with_a_taken_key_leaves_nothing_in_the_transaction_of_the_caller(
    database: str, app: rota.App, connection: Connection, index: Index, before: int
) -> None:
    index.enqueue(1)
    strict = index.using(on_duplicate="raise")
    free = [index.using(key=f"free {n}").new(n) for n in range(before)]
    with psycopg.connect(database) as own:
        own.execute("create table receipt ()")
        with pytest.raises(rota.KeyTaken):
            app.enqueue_many([*free, strict.new(2)], connection=own)
        app.enqueue_many([strict.using(key="other").new(3)], connection=own)
    assert connection.execute("select count(*) from rota.job").fetchone() == (2,)
    assert connection.execute("select to_regclass('receipt') is not null").fetchone() == (True,)


@rule("M51")
@pytest.mark.parametrize("change", ["replace", "postpone"])
def test_a_holder_that_has_begun_is_joined(app: rota.App, shared: Connection, change: Any) -> None:
    @app.job("t", unique=rota.Unique(on_duplicate=change))
    def handler(text: int) -> None: ...

    ends = {
        "running": None, "succeeded": SUCCEED, "failed": FAIL, "dead": GIVE_UP, "queued": SNOOZE,
    }  # fmt: skip
    hand = Hand(shared)
    for status, end in ends.items():
        first = handler.using(key=status, delay="0s").enqueue(1)
        [job] = hand.claim().jobs
        if end is not None:
            hand.settle((job, end))
        again = handler.using(key=status, delay="1h").enqueue(2)
        assert again == rota.Enqueued(first.id, False, status)
        assert app.get(first.id).payload == {"text": 1}


def _enqueue_in_sql(index: Index, own: Connection) -> rota.Enqueued:
    found = own.execute(
        "select id, created, status, change from rota.enqueue("
        "'t', '{\"text\": 2}', idempotency_key => 'k', on_duplicate => 'replace')"
    ).fetchone()
    assert found is not None
    return rota.Enqueued(*found)


Replace = Callable[[Index, Connection], rota.Enqueued]
EITHER_WAY = pytest.mark.parametrize(
    "replace",
    [
        lambda index, own: index.using(connection=own).enqueue(2),
        lambda index, own: index._sender.enqueue_many([index.new(2)], connection=own)[0],
        _enqueue_in_sql,
    ],
    ids=["python", "bulk", "sql"],
)


@rule("M51")
@EITHER_WAY
def test_a_holder_that_a_worker_is_claiming_counts_as_running(
    database: str, connection: Connection, index: Index, replace: Replace
) -> None:
    first = index.enqueue(1)
    with psycopg.connect(database) as claims, psycopg.connect(database) as own:
        [job] = Hand(claims).claim().jobs
        second = after_it_waited(connection, own, lambda: replace(index, own), claims.commit)
    assert second == rota.Enqueued(first.id, False, "running")
    assert job.payload == {"text": 1} == _row(connection, "payload")[0]


@rule("M20", "M51")
def test_a_change_is_part_of_the_callers_transaction(
    database: str, connection: Connection, index: Index
) -> None:
    index.enqueue(1)
    with psycopg.connect(database) as own:
        index.using(connection=own).enqueue(2)
        assert _row(connection, "payload") == ({"text": 1},)
        assert Hand(connection).claim().jobs == []  # it would run the old payload
        own.rollback()
    assert _row(connection, "payload") == ({"text": 1},)


@rule("M51")
@EITHER_WAY
def test_a_key_that_is_freed_while_a_change_waits_makes_a_new_job(
    database: str, connection: Connection, app: rota.App, index: Index, replace: Replace
) -> None:
    first = index.enqueue(1)
    with psycopg.connect(database) as cancels, psycopg.connect(database) as own:
        cancels.execute("select from rota.job for update")  # its key is still there

        def cancel() -> None:
            app.cancel(first.id, connection=cancels)
            cancels.commit()

        assert after_it_waited(connection, own, lambda: replace(index, own), cancel).created
        own.commit()
    assert _row(connection, "payload") == ({"text": 2},)


@rule("M21", "M51")
def test_a_bulk_replaces_postpones_and_creates_in_the_order_of_its_jobs(
    app: rota.App, connection: Connection, index: Index
) -> None:
    ids = [index.using(key=key).enqueue(1).id for key in "abc"]
    jobs = [
        index.using(key=key, on_duplicate=cast(Any, how), delay="1h").new(text)
        for key, how, text in [
            *[("c", "replace", 2), ("d", "raise", 3), ("a", "postpone", 4), ("b", "keep", 5)],
            *[("c", "replace", 6), ("d", "replace", 7), ("a", "keep", 8)],
        ]
    ]
    answers = app.enqueue_many(jobs)
    assert [answer.change for answer in answers] == [
        *("replaced", None, "postponed", None, "replaced", "replaced", None)
    ]
    assert [answer.id for answer in answers] == [
        *(ids[2], answers[1].id, ids[0], ids[1], ids[2], answers[1].id, ids[0])
    ]
    assert connection.execute(
        "select (payload ->> 'text')::int, run_at > now() from rota.job order by idempotency_key"
    ).fetchall() == [(1, True), (1, False), (6, True), (7, True)]


@rule("M51")
def test_two_bulks_that_replace_the_same_jobs_in_other_orders_do_not_deadlock(
    database: str,
    app: rota.App,
    connection: Connection,
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.store.ops.enqueue.INSERT_MAX", 3)  # several statements each
    keys = [f"{number:02}" for number in range(10)]
    for key in reversed(keys):  # ids and keys are in opposite orders
        index.using(key=key).enqueue(0)

    def produce(number: int) -> int:
        # Some have keys in between, so that their chunks begin elsewhere.
        own = [*keys[number % 3 :: 1 + number % 2], *(f"{n:02}{number}" for n in range(10))]
        jobs = [index.using(key=key).new(number) for key in own]
        with psycopg.connect(database) as connection:
            return sum(job.created for job in app.enqueue_many(jobs, connection=connection))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(produce, range(9))) == [10] * 9


@rule("M15", "M51")
def test_sql_obeys_what_the_type_declares_or_the_call_asks_for(
    app: rota.App, shared: Connection, index: Index
) -> None:
    app.sync()
    call = "select id, created, status, change from rota.enqueue('t', %s, idempotency_key => 'k'{})"

    def enqueue(text: int, more: str = "") -> Any:
        return shared.execute(call.format(more), [f'{{"text": {text}}}']).fetchone()

    first = enqueue(1)
    assert first[1:] == (True, "queued", None)
    assert enqueue(2) == (first[0], False, "queued", "replaced")
    assert enqueue(3, ", on_duplicate => 'keep'") == (first[0], False, "queued", None)
    later = ", on_duplicate => 'postpone', run_at => now() + interval '1 hour'"
    assert enqueue(4, later) == (first[0], False, "queued", "postponed")
    with pytest.raises(
        psycopg.errors.UniqueViolation, match=r"\(queued\) has the idempotency key k"
    ):
        enqueue(5, ", on_duplicate => 'raise'")
    for wrong in (", on_duplicate => 'drop'", ", on_duplicate => 'postpone'"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"rota\.enqueue: on_dupl"):
            enqueue(6, wrong)
    inserted = shared.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'k')")
    assert inserted.rowcount == 0  # a plain INSERT joins
    assert _row(shared, "payload", "run_at > now()") == ({"text": 2}, True)


@rule("M15", "M51")
def test_a_role_that_may_not_insert_changes_and_locks_no_job(
    database: str, connection: Connection, index: Index, role: str
) -> None:
    index.enqueue(1)
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as own:
        for call in (
            "rota.holders_lock('{t}', '{k}')",
            "rota.holders_meet('[{}]', '{k}', null, null, '[{\"job_type\": \"t\"}]', '{replace}')",
            "rota.holder_meet('replace', 't', 'k', null, '{}', '{}')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute(f"select {call}")
    assert _row(connection, "payload") == ({"text": 1},)


Make = Callable[[Index], Index]


@rule("M51", "M81")
@pytest.mark.parametrize(
    "first", [lambda index: index.using(delay="1h"), lambda index: index.using(queue="other")]
)
def test_a_replaced_job_that_is_due_wakes_an_idle_worker(
    database: str, connection: Connection, index: Index, first: Make
) -> None:
    first(index).enqueue(1)
    queue = _row(connection, "queue")[0]
    connection.execute(
        "insert into rota.queue (name, notify_until, waiting) "
        "values (%s, now() + interval '1 h', '{kind w}')",
        [queue],
    )
    with psycopg.connect(database, autocommit=True) as listens:
        listens.execute(f'listen "{Statements("rota").worker_channel("w")}"'.encode())
        index.enqueue(2)
        [notice] = listens.notifies(timeout=30, stop_after=1)
        assert notice.payload == queue


@rule("M51")
def test_what_lacks_a_key_or_a_time_is_refused(
    app: rota.App, shared: Connection, index: Index
) -> None:
    @app.job("plain")
    def plain() -> None: ...

    with pytest.raises(rota.UsageError, match="'plain': on_duplicate needs a key"):
        plain.using(on_duplicate="replace").enqueue()
    with pytest.raises(rota.UsageError, match="'t': on_duplicate='postpone' needs run_at or delay"):
        index.using(on_duplicate="postpone").enqueue(1)
    with pytest.raises(rota.UsageError, match="on_duplicate must be 'keep' or 'replace'"):
        index.using(on_duplicate="drop")  # type: ignore[arg-type]
    assert shared.execute("select count(*) from rota.job").fetchone() == (0,)
