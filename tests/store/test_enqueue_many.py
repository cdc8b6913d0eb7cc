"""Enqueueing in bulk: all or none, aligned with the input, few statements, no deadlock."""

from __future__ import annotations

import asyncio
import random
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from msgspec import UNSET
from psycopg import pq
from psycopg.conninfo import make_conninfo

import rota
from rota.store import ops
from rota.store.migrate import migrate
from tests.docs.reader import read_page
from tests.store.rows import row
from tests.store.work import Connection
from tests.support.rules import rule
from tests.support.wait import count_lock_waits, eventually

Send = rota.JobType[[int], [int], None]
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def send(app: rota.App) -> Send:
    @app.job("send")
    def send(user: int) -> None: ...

    return send


@pytest.fixture
def remind(app: rota.App) -> Send:
    @app.job("remind", queue="low", priority=-5, max_attempts=2)
    def remind(user: int) -> None: ...

    return remind


@rule("M20", "M22")
@pytest.mark.parametrize("others", [0, 1_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": "1h", "expires": "2d"},
        {"run_at": datetime(2020, 1, 1, tzinfo=UTC), "priority": 7, "queue": "other"},
        {"run_at": datetime(2090, 1, 1, tzinfo=UTC), "max_attempts": 3, "meta": {"a": ["\u00e4"]}},
        {"timeout": "90s"},
    ],
)
def test_jobs_that_are_alike_are_inserted_as_others_are(
    shared: Connection, app: rota.App, remind: Send, options: dict[str, Any], others: int
) -> None:
    alike = [remind.using(**options).new(user) for user in range(others + 3)]
    # A job with a key makes the same jobs go the way of those that differ.
    keyed = remind.using(key="k").new(0)
    with shared.transaction():
        first = app.enqueue_many(alike, connection=shared)
        second = app.enqueue_many([*alike, keyed], connection=shared)[:-1]
    for ids in ([job.id for job in first], [job.id for job in second]):
        assert ids == sorted(ids)
    assert [(job.created, job.status) for job in first] == [(True, "queued")] * len(alike)
    rows = [
        shared.execute(
            "select to_jsonb(j) - array['id', 'run_at', 'created_at', 'updated_at', 'expires_at'], "
            "expires_at - run_at, run_at from rota.job j where id = any (%s) order by id",
            [[job.id for job in inserted]],
        ).fetchall()
        for inserted in (first, second)
    ]
    assert [row[:2] for row in rows[0]] == [row[:2] for row in rows[1]]
    # Both calls look at the clock, the second a little later.
    assert all(
        timedelta() <= later[2] - sooner[2] < timedelta(minutes=1)
        for sooner, later in zip(*rows, strict=True)
    )
    assert [row[0]["payload"]["user"] for row in rows[0]] == list(range(others + 3))


def test_ids_ascend_in_the_order_of_the_input_whatever_the_order_of_the_keys(
    app: rota.App, send: Send
) -> None:
    keys = [f"{number:05}" if number % 3 else None for number in range(2200)]
    random.Random(1).shuffle(keys)
    done = app.enqueue_many([send.using(key=key).new(at) for at, key in enumerate(keys)])
    assert all(job.created for job in done)
    assert [job.id for job in done] == sorted(job.id for job in done)
    stored = {job.id: job for job in app.find(limit=10_000)}
    assert [
        (stored[job.id].payload["user"], stored[job.id].idempotency_key) for job in done
    ] == list(enumerate(keys))


@rule("M51")
def test_results_are_aligned_with_the_input_also_for_duplicates_within_the_batch(
    app: rota.App, send: Send, remind: Send
) -> None:
    taken = send.using(key="taken").enqueue(0)
    keyed = [
        ("send", "b"),
        ("send", "taken"),
        ("remind", "b"),
        ("send", "a"),
        ("send", "b"),
        ("send", None),
        ("remind", "b"),
        ("send", "a"),
    ]
    types = {"send": send, "remind": remind}
    done = app.enqueue_many(
        [types[name].using(key=key).new(at) for at, (name, key) in enumerate(keyed)]
    )
    assert [job.created for job in done] == [True, False, True, True, False, True, False, False]
    assert [job.status for job in done] == ["queued"] * 8
    assert [done[at].id for at in (1, 4, 6, 7)] == [taken.id, done[0].id, done[2].id, done[3].id]
    assert [app.get(job.id).payload["user"] for job in done] == [0, 0, 2, 3, 0, 5, 2, 3]


@rule("M51")
def test_duplicates_a_thousand_jobs_apart_find_each_other(app: rota.App, send: Send) -> None:
    keys = [f"{number % 900}" for number in range(2700)]
    done = app.enqueue_many([send.using(key=key).new(at) for at, key in enumerate(keys)])
    assert [job.created for job in done] == [True] * 900 + [False] * 1800
    assert [job.id for job in done] == [job.id for job in done[:900]] * 3


@rule("M21")
def test_jobs_of_the_two_hours_that_the_clock_calls_alike_keep_their_own_times(
    app: rota.App, send: Send
) -> None:
    twice = [datetime(2090, 10, 29, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)]
    done = app.enqueue_many(send.using(run_at=at).new(1) for at in twice)
    stored = [app.get(job.id).run_at for job in done]
    assert stored == [at.astimezone(UTC) for at in twice]
    assert stored[1] - stored[0] == timedelta(hours=1)


@rule("M20")
def test_on_an_autocommit_connection_a_bulk_is_all_or_nothing(
    database: str,
    connection: Connection,
    app: rota.App,
    send: Send,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of so many statements not all are on their way at once.
    monkeypatch.setattr("rota.store.ops.enqueue.INSERT_MAX", 10)
    connection.execute(REFUSE_42)
    with psycopg.connect(database, autocommit=True) as callers:
        for given in (callers, UNSET):
            with pytest.raises(psycopg.errors.CheckViolation, match="not_42"):
                app.enqueue_many([send.new(user) for user in range(45)], connection=given)
            assert app.find() == []
        with callers.pipeline():
            callers.execute("select 1")
            with pytest.raises(psycopg.errors.CheckViolation, match="not_42"):
                app.enqueue_many([send.new(user) for user in range(45)], connection=callers)
        assert callers.info.transaction_status == pq.TransactionStatus.IDLE
    assert app.find() == []

    async def enqueue_in_async() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as callers:
            for given in (callers, UNSET):
                with pytest.raises(psycopg.errors.CheckViolation, match="not_42"):
                    await app.aenqueue_many([send.new(at) for at in range(45)], connection=given)
        await app.aclose()

    asyncio.run(enqueue_in_async())
    assert connection.execute("select count(*) from rota.job").fetchone() == (0,)


REFUSE_42 = "alter table rota.job add constraint not_42 check (payload->>'user' <> '42')"


def test_what_is_no_job_is_refused_by_its_place(app: rota.App, send: Send) -> None:
    with pytest.raises(rota.UsageError, match="job 1 of the list is 7; make it with"):
        app.enqueue_many([send.new(1), 7])  # type: ignore[list-item]
    with pytest.raises(rota.UsageError):
        send.enqueue_many({"user": 1})  # type: ignore[dict-item]
    others: list[Any] = ["ab", None, send.new(1)]
    for wrong in others:
        with pytest.raises(rota.UsageError, match="'send': job 1 of the list is "):
            send.enqueue_many([{"user": 1}, wrong])
    assert app.find() == []


def test_the_jobs_of_one_bulk_go_through_one_connection(
    database: str, app: rota.App, send: Send
) -> None:
    with psycopg.connect(database) as first, psycopg.connect(database) as other:
        with pytest.raises(rota.UsageError, match="different connections"):
            app.enqueue_many(
                [send.using(connection=first).new(1), send.using(connection=other).new(2)]
            )
        with pytest.raises(rota.UsageError, match="different connections"):
            app.enqueue_many([send.using(connection=first).new(1)], connection=other)
        with pytest.raises(rota.UsageError, match="by position or by name"):
            send.using(first, connection=other)
        app.enqueue_many([send.using(connection=first).new(1), send.new(2)])
        assert first.execute("select count(*) from rota.job").fetchone() == (2,)
        assert app.find() == []


@rule("M51")
@pytest.mark.parametrize("way", ["at once", "by row", "by row of a producer"])
def test_two_bulks_with_the_same_keys_in_opposite_order_cannot_deadlock(
    database: str, connection: Connection, app: rota.App, send: Send, remind: Send, way: str,
    producer: str,
) -> None:  # fmt: skip
    if way != "at once":
        connection.execute(WATCH[0].encode())
    user = make_conninfo(database, **{"user": producer} if "producer" in way else {})
    keyed = [
        (job_type, f"{number:04}")
        for job_type, count in ((send, 1200 if way == "at once" else 600), (remind, 200))
        for number in range(count)
    ]

    def bulk(order: list[tuple[Send, str]]) -> dict[tuple[str, str], rota.Enqueued]:
        jobs = [job_type.using(key=key).new(0) for job_type, key in order]
        with psycopg.connect(user, autocommit=True) as callers:
            results = app.enqueue_many(jobs, connection=callers)
        return {
            (job_type.name, key): result
            for (job_type, key), result in zip(order, results, strict=True)
        }

    with ThreadPoolExecutor(2) as pool, psycopg.connect(database) as other:
        other.execute("insert into rota.job (job_type, idempotency_key) values ('send', '0500')")
        bulks = [pool.submit(bulk, order) for order in (keyed, keyed[::-1])]
        # Each stands somewhere in its first thousand, and has its second before it.
        eventually(lambda: count_lock_waits(connection) == 2)
        other.rollback()
        forwards, backwards = (future.result(60) for future in bulks)
    assert {key: job.id for key, job in forwards.items()} == {
        key: job.id for key, job in backwards.items()
    }
    assert all(forwards[key].created != backwards[key].created for key in forwards)


@rule("M51")
def test_a_key_freed_between_the_refusal_and_the_question_who_holds_it_is_taken(
    app: rota.App, shared: Connection
) -> None:
    shared.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'k')")
    new = row(queue="default", priority=0, idempotency_key="k")
    statements = app._database.statements
    for operation in (ops.insert(new), ops.insert_many([new])):
        query, refused = next(operation), False
        try:
            while True:
                rows = shared.execute(statements[query.name], query.params).fetchall()
                if rows == ([([None],)] if query.name == "jobs_insert" else []):
                    refused = True
                    # As a cancel does.
                    shared.execute("delete from rota.idempotency; delete from rota.job")
                query = operation.send(rows)
        except StopIteration as end:
            result = end.value
        assert refused
        assert (result if isinstance(result, rota.Enqueued) else result[0]).created


@rule("M51")
def test_a_bulk_takes_and_refuses_the_keys_that_single_enqueues_would(
    shared: Connection, app: rota.App
) -> None:
    keys = ["free", "live", "over", "former", None, "twice", "twice", 'a "quote\\ and , {}', "NULL"]
    created = []
    for way in ("one", "many"):
        shared.execute(
            "insert into rota.job_type (name, aliases) values (%s, array[%s])",
            [f"renamed_{way}", f"former_{way}"],
        )
        new = {}
        for name in (f"plain_{way}", f"renamed_{way}"):
            new[name] = app.job(name)(lambda: None)
            shared.execute(
                "insert into rota.job (job_type, idempotency_key) values (%s, 'live')", [name]
            )
            if name.startswith("plain"):
                shared.execute(
                    "insert into rota.idempotency values (%s, 'over', 1, rota.clock())", [name]
                )
        # As one that commits while the new name is being declared.
        shared.execute(
            "insert into rota.idempotency values (%s, 'former', 1, 'infinity')", [f"former_{way}"]
        )
        for job_type in new.values():
            jobs = [job_type.using(key=key).new() for key in keys]
            done = app.enqueue_many(jobs) if way == "many" else [app.enqueue(job) for job in jobs]
            created.append([job.created for job in done])
    plain = [True, False, True, True, True, True, False, True, True]
    renamed = [True, False, True, False, True, True, False, True, True]
    assert created == [plain, renamed] * 2
    stored = {job.idempotency_key for job in app.find(job_type="plain_many", limit=100)}
    assert stored == set(keys)


@pytest.fixture
def producer(connection: Connection, role: str) -> str:
    """A role with the documented rights of a producer."""
    columns = re.search(r"GRANT INSERT \((job_type.*?)\)", read_page("tables-and-sql.md"))
    assert columns is not None
    granted = f"{columns[1]}) on rota.job to {role}; grant select (id) on rota.job to {role}"
    connection.execute(f"grant insert ({granted}".encode())
    return role


@rule("M15", "M45")
def test_a_role_that_may_not_insert_takes_no_key_and_learns_of_no_job(
    database: str, connection: Connection, role: str
) -> None:
    take = "select rota.keys_take('{1}'::bigint[], '{k}'::text[], null, '{t}'::text[])"
    connection.execute("select rota.ids_reserve(1)")
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as reader:
        for asked in (
            take,
            "select rota.ids_reserve(1)",
            "select rota.key_holders('{t}', '{k}')",
            "select rota.key_jobs('t', 'k')",
            "select rota.lane_jobs('g')",
            "select rota.batch_ranges(1)",
            "select rota.holders_meet('[{}]', '{k}', null, null, '[{}]', '{keep}')",
            "select rota.jobs_insert(null, '[{}]', null, null, null, '[{\"job_type\": \"t\"}]')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(asked.encode())
    connection.execute(f"grant insert (job_type) on rota.job to {role}".encode())
    with psycopg.connect(database) as producer:  # a role that it may become counts
        producer.execute(f"set role {role}".encode())
        assert producer.execute(take).fetchone() == ([1],)


@rule("M15", "M45")
def test_a_producer_gives_no_job_the_id_of_another(
    app: rota.App, send: Send, database: str, connection: Connection, producer: str
) -> None:
    done = send.enqueue(1).id
    assert app.drain().succeeded == 1
    take = "select rota.keys_take(array[%s::bigint], '{k}', null, '{t}')"
    insert = "select rota.jobs_insert(%s, '[{}]', null, null, null, '[{\"job_type\": \"t\"}]')"
    with psycopg.connect(make_conninfo(database, user=producer), autocommit=True) as theirs:
        made = send.using(connection=theirs).enqueue_many([{"user": 2}, {"user": 3}])
        assert [job.id for job in made] == [done + 1, done + 2]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            theirs.execute("insert into rota.job (id, job_type) values (%s, 't')", [done])
        for _ in range(2):
            for asked, given in ((insert, [done]), (take, done), (take, made[0].id)):
                with pytest.raises(psycopg.Error, match="that of another job"):
                    theirs.execute(asked.encode(), [given])
            with pytest.raises(psycopg.Error, match=r"that of another job|permission denied"):
                theirs.execute("insert into rota.job (id, job_type) values (%s, 't')", [done])
            connection.execute(f"grant insert on rota.job to {producer}".encode())
        for unknown in (2**63 - 1, made[1].id + 1, 0, -5):
            with pytest.raises(psycopg.errors.InvalidParameterValue):
                theirs.execute(take.encode(), [unknown])
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            theirs.execute("select rota.ids_reserve(2147483647)")
        [reserved] = theirs.execute("select rota.ids_reserve(1)").fetchone() or ()
        assert theirs.execute(insert, [reserved]).fetchone() == (reserved,)


WATCH = [
    (
        "create table public.seen (role text); grant insert on public.seen to public; "
        "create function public.note() returns trigger language plpgsql as "
        "$$ begin insert into seen values (current_user); return null; end $$; "
        "create trigger note after insert on rota.job for each row execute function public.note()"
    ),
    (
        "drop trigger note on rota.job; alter table rota.job enable row level security; "
        "create policy known on rota.job for select using (true); "
        "create policy theirs on rota.job for insert with check (queue <> 'not theirs')"
    ),
]
"""A trigger, then a policy."""


@rule("M15", "M45", "M51")
def test_a_bulk_of_a_producers_has_his_rights_as_an_insert_has(
    database: str, connection: Connection, app: rota.App, send: Send, producer: str
) -> None:
    taken = send.using(key="taken").enqueue(0)
    with psycopg.connect(make_conninfo(database, user=producer), autocommit=True) as theirs:

        def enqueue(n: int, **options: Any) -> list[Any]:
            jobs = [
                send.using(key=key, delay="1h", expires="2d", meta={"a": n}, **options).new(at)
                for at, key in enumerate((None, "taken", f"free {n}", f"free {n}"))
            ]
            done = app.enqueue_many(jobs, connection=theirs)
            assert [job.created for job in done] == [True, False, True, False]
            assert (done[1].id, done[3].id) == (taken.id, done[2].id)
            return connection.execute(
                "select payload, queue, expires_at - run_at, run_at - created_at < '61min', "
                "run_at - created_at > '59min', idempotency_key is null from rota.job "
                "where meta ->> 'a' = %s order by payload",
                [f"{n}"],
            ).fetchall()

        at_once = enqueue(0)
        for n, watched in enumerate(WATCH, 1):
            connection.execute(watched.encode())
            assert enqueue(n) == at_once
        assert connection.execute("select role from public.seen").fetchall() == [(producer,)] * 2
        with pytest.raises(rota.errors.SchemaError, match="row-level security"):
            enqueue(3, queue="not theirs")


@rule("M51")
def test_a_key_whose_job_was_deleted_or_never_inserted_goes_to_the_next(
    shared: Connection, app: rota.App, send: Send
) -> None:
    for key in ("in bulk", "cancelled"):
        send.using(key=key).enqueue(0)
    shared.execute("delete from rota.job")
    take = "select rota.keys_take(rota.ids_reserve(3), '{in bulk too, alone, sql}', null, '{send}')"
    shared.execute(take.encode())
    many = app.enqueue_many([send.using(key=f"in bulk{at}").new(1) for at in ("", " too", "")])
    assert [job.created for job in many] == [True, True, False]
    assert send.using(key="alone").enqueue(1).created
    alone = shared.execute("select created from rota.enqueue('send', idempotency_key => 'sql')")
    assert alone.fetchall() == [(True,)]
    with pytest.raises(rota.errors.KeyNotFound):
        app.cancel(key="cancelled")


@rule("M51")
@pytest.mark.parametrize("why", ["expired", "former name"])
def test_keys_are_taken_in_one_order_also_where_some_are_not_free(
    database: str, connection: Connection, why: str
) -> None:
    take = "select rota.keys_take(%s::bigint[], %s::text[], null, '{t}'::text[])"
    connection.execute("select rota.ids_reserve(9)")
    held = "insert into rota.idempotency values ('t', 'b', 1, rota.clock())"
    if why == "former name":
        connection.execute("insert into rota.job_type (name, aliases) values ('t', '{was}')")
        held = "insert into rota.idempotency values ('t', 'b', 1, 'infinity')"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database) as holder:
        if why == "expired":
            connection.execute(held)
            holder.execute("select from rota.idempotency for update")
        else:
            holder.execute(held)
        first = psycopg.connect(database)
        waiting = pool.submit(first.execute, take, [[1, 2], ["b", "c"]])
        eventually(lambda: count_lock_waits(connection))
        # The first waits for b and has not taken c: who has c may wait for b.
        with psycopg.connect(database, options="-c lock_timeout=5s") as second:
            second.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'c')")
        holder.rollback()
        assert waiting.result(30).fetchone() == ([1],)
        first.close()


@rule("M20")
def test_a_trigger_that_leaves_out_jobs_of_a_bulk_is_named_and_nothing_is_inserted(
    shared: Connection, send: Send
) -> None:
    shared.execute("""
        create function public.leave_out() returns trigger language plpgsql as
          $$ begin return null; end $$;
        create trigger a_leave_out before insert on rota.job for each row
          when (new.payload ->> 'user' = '2') execute function public.leave_out()""")
    with pytest.raises(rota.RotaError, match="not inserted: 1 of 3 jobs, left out by a trigger"):
        send.enqueue_many([{"user": user} for user in range(1, 4)])
    assert shared.execute("select count(*) from rota.job").fetchone() == (0,)


@rule("M12")
def test_a_raised_limit_reaches_connections_that_are_open(
    database: str, app: rota.App, connection: Connection
) -> None:
    @app.job("large")
    def large(text: str) -> None: ...

    for _ in range(8):  # until every plan is kept
        large.enqueue("x")
    with pytest.raises(rota.PayloadError):
        large.enqueue("x" * 100_000)
    for limit in (200_000, 400_000):
        migrate(database, payload_bytes_max=limit)
        assert large.enqueue("x" * (limit - 100_000)).created
