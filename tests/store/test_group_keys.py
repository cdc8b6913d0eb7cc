"""The group key that a job gets: from its type, its call, its schedule, and by every way in."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import date
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
Invoice = rota.JobType[..., ..., None]

LACKS_GROUP = "group_key is missing: job type 'invoice' declares one, made of invoice"


@pytest.fixture
def invoice(app: rota.App) -> Invoice:
    @app.job(
        "invoice",
        ordered=rota.Ordered(lambda invoice: f"invoice:{invoice}", capacity=2),
        aliases=("bill",),
    )
    def invoice(invoice: int, day: date | None = None) -> None: ...

    app.sync()
    return invoice


def _lanes(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select group_key, group_capacity from rota.job order by id"
    ).fetchall()


def _lane_of(connection: Connection, job: int) -> tuple[Any, ...]:
    [lane] = connection.execute(
        "select group_key, group_capacity from rota.job where id = %s", [job]
    ).fetchall()
    return lane


@rule("M21", "M60")
def test_every_way_to_enqueue_makes_the_group_key_that_the_type_declares(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    invoice.enqueue(1)
    asyncio.run(_aenqueue(app, invoice, 2))
    invoice.enqueue_many([{"invoice": 3}, {"invoice": 4, "day": date(2026, 11, 23)}])
    app.enqueue_many([invoice.new(5), invoice.using(priority=1).new(6).using(delay="1h")])
    app.enqueue("bill", {"invoice": 7})
    text, params = invoice.new(8).statement("pyformat")
    connection.execute(text.encode(), params)
    assert _lanes(connection) == [(f"invoice:{n}", 2) for n in range(1, 9)]


async def _aenqueue(app: rota.App, invoice: Invoice, number: int) -> None:
    await invoice.aenqueue(number)
    await app.aclose()


@rule("M21", "M60")
def test_a_job_without_a_group_key_has_no_lane_whatever_its_type_says_of_lanes(
    app: rota.App, connection: Connection
) -> None:
    @app.job("t", ordered=rota.Ordered(capacity=3, while_retrying="release", after_death="halt"))
    def handler() -> None: ...

    app.sync()
    handler.enqueue()
    handler.enqueue_many([{}, {}])
    handler.using(group_capacity=5).enqueue()
    connection.execute("insert into rota.job (job_type) values ('t')")
    assert _lanes(connection) == [(None, None)] * 5
    handler.using(group_key="g").enqueue()
    assert _lanes(connection)[-1] == ("g", 3)


@rule("M21", "M60")
def test_what_the_call_says_counts_and_the_function_is_not_asked(
    app: rota.App, connection: Connection
) -> None:
    @app.job("t", ordered=lambda n: 1 // n)
    def handler(n: int) -> None: ...

    handler.using(group_key="mine", group_capacity=7).enqueue(0)
    app.enqueue(handler.using(group_key="mine").new(0).using(group_key="other"))
    assert _lanes(connection) == [("mine", 7), ("other", 1)]


@rule("M60")
def test_jobs_of_one_bulk_keep_their_own_lanes_and_capacities(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    @app.job("plain")
    def plain() -> None: ...

    app.enqueue_many(
        [
            plain.new(),
            invoice.new(1),
            invoice.using(group_capacity=9).new(1),
            plain.using(group_key='a "b", {c} \\ d').new(),
            plain.using(key="k").new(),
            invoice.using(key="k").new(2),
        ]
    )
    assert _lanes(connection) == [
        (None, None),
        ("invoice:1", 2),
        ("invoice:1", 9),
        ('a "b", {c} \\ d', 1),
        (None, None),
        ("invoice:2", 2),
    ]


@rule("M21", "M51")
def test_a_group_key_and_an_idempotency_key_are_made_of_the_same_arguments(
    app: rota.App, connection: Connection
) -> None:
    @app.job("t", unique=lambda n: f"key:{n}", ordered=lambda n: f"group:{n % 2}")
    def handler(n: int) -> None: ...

    app.sync()
    first = handler.enqueue(3)
    assert handler.enqueue(3) == rota.Enqueued(first.id, False, "queued")
    assert handler.enqueue_many([{"n": 3}]) == [rota.Enqueued(first.id, False, "queued")]
    [job] = app.find()
    assert (job.idempotency_key, job.group_key, job.group_capacity) == ("key:3", "group:1", 1)


async def _async_group(invoice: int) -> str:
    return f"{invoice}"


@rule("M60")
@pytest.mark.parametrize(
    ("group_key", "why"),
    [
        (lambda invoce: f"{invoce}", "takes 'invoce', which is no argument of the handler; it ta"),
        (_async_group, "must be a plain function"),
    ],
)
def test_a_function_that_rota_cannot_call_is_refused_at_its_declaration(
    group_key: Any, why: str
) -> None:
    with pytest.raises(rota.errors.DeclarationError) as refused:

        @rota.Jobs().job("invoice", ordered=group_key)
        def invoice(invoice: int) -> None: ...

    assert "job type 'invoice': the group_key function at " in str(refused.value)
    assert why in str(refused.value)


@rule("M60")
@pytest.mark.parametrize(
    ("makes", "why"),
    [
        ("None", "what it returns must be 1 to 255 printable characters, not None"),
        ("''", "not ''"),
        ("'k' * 256", "must be 1 to 255"),
        ("{}['user']", "raised KeyError: 'user'"),
    ],
)
def test_a_group_function_that_fails_inserts_nothing_and_the_error_says_where_it_is(
    app: rota.App, connection: Connection, makes: str, why: str
) -> None:
    @app.job("invoice", ordered=eval(f"lambda invoice: {makes}"))
    def invoice(invoice: int) -> None: ...

    with pytest.raises(rota.UsageError) as refused:
        invoice.enqueue(7)
    assert str(refused.value).startswith("job type 'invoice': its group_key function at <string>:1")
    assert why in str(refused.value)
    with pytest.raises(rota.UsageError, match=r"\(job 1 of the list\): its group_key function"):
        app.enqueue_many([invoice.using(group_key="g").new(1), *_made(invoice)])
    assert _lanes(connection) == []


def _made(invoice: Any) -> list[Any]:
    return [invoice._make((7,), {}, invoice._options, 1)]


@rule("M60")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ordered": "invoice"}, "ordered must be a function of the handler's arguments"),
        ({"max_running": 0}, "max_running must be a whole number from 1 to 100,000"),
        ({"max_running": True}, "max_running must be a whole number"),
    ],
)
def test_an_option_of_lanes_and_caps_that_is_out_of_range_is_refused(
    options: dict[str, Any], why: str
) -> None:
    declare: Any = rota.Jobs().job
    with pytest.raises(rota.RotaError, match=why):
        declare("t", **options)(_async_group)


@rule("M60")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group_key": ""}, "group_key must be 1 to 255 printable characters"),
        ({"group_key": "a\nb"}, "group_key must be 1 to 255 printable"),
        ({"group_key": "k" * 256}, "group_key must be 1 to 255 printable"),
        ({"group_key": 7}, "group_key must be 1 to 255 printable"),
        ({"group_capacity": 0}, "group_capacity must be a whole number from 1 to 1,000"),
    ],
)
def test_an_option_of_one_job_that_is_out_of_range_is_refused(
    invoice: Invoice, options: Any, why: str
) -> None:
    with pytest.raises(rota.UsageError, match=why):
        invoice.using(**options)


@rule("M15", "M60")
@pytest.mark.usefixtures("invoice")
@pytest.mark.parametrize(
    "insert",
    [
        "insert into rota.job (job_type, payload) values ('invoice', '{\"invoice\": 1}')",
        "insert into rota.job (job_type, queue, priority) values ('invoice', 'mail', 5)",
        "insert into rota.job (job_type) values ('bill')",
        "insert into rota.job (job_type) values ('other'), ('invoice')",
        "insert into rota.job (job_type, schedule) values ('invoice', 'nightly')",
        "select rota.enqueue('invoice')",
    ],
)
def test_an_insert_without_a_group_key_that_its_type_declares_is_refused_in_words(
    connection: Connection, insert: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(insert.encode())
    assert refused.value.diag.message_primary == f"rota.job: {LACKS_GROUP}; nothing was written"
    assert refused.value.diag.constraint_name == "job_group_key"
    assert _lanes(connection) == []


@rule("M15", "M60")
def test_a_client_of_an_older_release_is_refused_in_the_same_words(
    database: str, connection: Connection, invoice: Invoice
) -> None:
    with closing(rota.App(database, release="older")) as older:

        @older.job("invoice")
        def handler(invoice: int) -> None: ...

        with pytest.raises(rota.UsageError, match=f"^{LACKS_GROUP}; nothing was written$"):
            handler.enqueue(1)
        with pytest.raises(rota.UsageError, match=LACKS_GROUP):
            older.enqueue_many([handler.using(group_key="k").new(1), handler.new(2)])
        with pytest.raises(rota.UsageError, match=LACKS_GROUP):
            older.enqueue("invoice", {"invoice": 1})
    assert _lanes(connection) == []


@rule("M15", "M51", "M60")
def test_a_type_may_declare_a_key_and_a_group_key_and_each_is_asked_for(
    connection: Connection,
) -> None:
    connection.execute(
        "select rota.declare('both', key_arguments => '{id}', group_arguments => '{id,day}')"
    )
    for given, lacks in (
        ("", "group_key is missing: job type 'both' declares one, made of id, day"),
        (", idempotency_key => 'k'", "group_key is missing"),
        (", group_key => 'g'", "idempotency_key is missing: job type 'both' declares one, made of"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match=lacks):
            connection.execute(f"select rota.enqueue('both'{given})".encode())
    connection.execute("select rota.enqueue('both', idempotency_key => 'k', group_key => 'g')")
    assert _lanes(connection) == [("g", 1)]


@rule("M15", "M60")
@pytest.mark.usefixtures("invoice")
@pytest.mark.parametrize(
    ("insert", "lane"),
    [
        ("insert into rota.job (job_type, group_key) values ('invoice', 'g')", ("g", 2)),
        ("insert into rota.job (job_type, group_key) values ('bill', 'g')", ("g", 2)),
        (
            # A row that names queue and priority counts as complete.
            "insert into rota.job (job_type, group_key, queue, priority) "
            "values ('invoice', 'g', 'q', 0)",
            ("g", None),
        ),
        (
            "insert into rota.job (job_type, group_key, group_capacity) values ('invoice', 'g', 5)",
            ("g", 5),
        ),
        ("insert into rota.job (job_type, group_key) values ('unknown', 'g')", ("g", None)),
        ("select rota.enqueue('invoice', group_key => 'g')", ("g", 2)),
        ("select rota.enqueue('invoice', '{}', 'q', 0, group_key => 'g')", ("g", 2)),
        ("select rota.enqueue('invoice', group_key => 'g', group_capacity => 4)", ("g", 4)),
        ("select rota.enqueue('plain', group_capacity => 4)", (None, None)),
    ],
)
def test_a_plain_insert_gets_the_capacity_that_its_type_declares(
    connection: Connection, insert: str, lane: tuple[str, int | None]
) -> None:
    connection.execute(insert.encode())
    assert _lanes(connection) == [lane]


@rule("M15", "M60")
@pytest.mark.parametrize(
    ("columns", "values", "why"),
    [
        ("group_key", "''", "group_key must be 1 to 255 characters, not 0"),
        ("group_key", "repeat('k', 256)", "group_key must be 1 to 255 characters, not 256; hash"),
        ("group_key, group_capacity", "'g', 0", "group_capacity must be from 1 to 1000, not 0"),
        ("group_capacity", "1001", "group_capacity must be from 1 to 1000, not 1001"),
    ],
)
def test_a_lane_that_python_would_refuse_is_refused_in_sql_too(
    connection: Connection, columns: str, values: str, why: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=why):
        connection.execute(
            f"insert into rota.job (job_type, {columns}) values ('t', {values})".encode()
        )
    connection.execute("insert into rota.job (job_type) values ('t')")
    with pytest.raises(psycopg.errors.CheckViolation, match=why):
        connection.execute(f"update rota.job set ({columns}) = row({values})".encode())


@rule("M21", "M60", "M87")
def test_a_job_that_runs_again_is_of_the_same_lane(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    dead = invoice.using(group_key="mine", group_capacity=5).enqueue(1)
    app.jobs.discard(dead.id)
    again = app.retry(dead.id, again=True)
    assert _lane_of(connection, again.id) == ("mine", 5)
    app.jobs.archive(dead.id, why="done")
    assert _lane_of(connection, app.retry(dead.id, again=True).id) == ("mine", 5)
    assert app.get(dead.id).group_key == "mine"


@rule("M60", "M87")
def test_a_job_older_than_its_types_group_key_can_still_run_again(
    app: rota.App, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) values ('t')")
    [(dead,)] = connection.execute("select id from rota.job").fetchall()
    connection.execute("select rota.declare('t', group_arguments => '{n}')")
    app.jobs.discard(dead)
    assert _lane_of(connection, app.retry(dead, again=True).id) == (None, None)
    assert _lane_of(connection, app.retry(dead).id) == (None, None)


# On a key that is taken


@pytest.fixture
def index(app: rota.App) -> rota.JobType[[int], [int], None]:
    @app.job(
        "t",
        unique=rota.Unique(lambda: "k", on_duplicate="replace"),
        ordered=rota.Ordered(lambda n: f"g:{n}", capacity=2),
    )
    def index(n: int) -> None: ...

    app.sync()
    return index


Index = rota.JobType[[int], [int], None]


@rule("M51", "M60")
def test_a_replaced_payload_moves_the_job_to_the_lane_of_the_new_arguments(
    app: rota.App, connection: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    assert index.enqueue(2) == rota.Enqueued(first.id, False, "queued", "replaced")
    assert _lanes(connection) == [("g:2", 2)]
    index.enqueue_many([{"n": 3}])
    assert _lanes(connection) == [("g:3", 2)]
    app.enqueue_many([index.using(group_key="x", group_capacity=4).new(4)])
    assert _lanes(connection) == [("x", 4)]
    app.enqueue("t", {"n": 5})
    assert _lanes(connection) == [("g:5", 2)]
    text, params = index.new(6).statement("pyformat")
    assert connection.execute(text.encode(), params).fetchall() == [
        (first.id, False, "queued", "replaced")
    ]
    assert _lanes(connection) == [("g:6", 2)]


PARKED = "update rota.job set status = 'waiting', run_at = rota.clock() - interval '1 minute'"


def _state(connection: Connection) -> tuple[Any, ...]:
    [found] = connection.execute(
        "select status, in_lane, waits_for, run_at > rota.clock() - interval '30 s', "
        "run_at > rota.clock() from rota.job"
    ).fetchall()
    return found


@rule("M11", "M51", "M60")
def test_a_parked_holder_is_replaced_and_is_queued_again_only_if_its_lane_changes(
    connection: Connection, index: Index
) -> None:
    index.enqueue(1)
    connection.execute(PARKED)
    assert index.enqueue(1).change == "replaced"
    assert _state(connection) == ("waiting", None, None, False, False)
    changed = index.enqueue(2)
    assert (changed.change, changed.status) == ("replaced", "queued")
    assert _state(connection) == ("queued", None, None, True, False)


@rule("M11", "M51", "M60")
def test_a_holder_that_moves_gives_up_its_place_and_what_it_waits_for(
    connection: Connection, index: Index
) -> None:
    index.enqueue(1)
    holds = PARKED + ", in_lane = true, waits_for = 'type t', waits_since = rota.clock()"
    connection.execute(holds.encode())
    assert index.enqueue(1).change == "replaced"
    assert _state(connection) == ("waiting", True, "type t", False, False)
    assert index.using(delay="1h").enqueue(1).change == "replaced"
    assert _state(connection) == ("queued", None, None, True, True)
    connection.execute(holds.encode())
    assert index.using(on_duplicate="postpone", delay="1h").enqueue(1).change == "postponed"
    assert _state(connection) == ("queued", None, None, True, True)


@rule("M11", "M51", "M60")
def test_a_parked_job_of_a_pending_key_is_joined_and_kept_from_its_claim(
    app: rota.App, connection: Connection, second: Connection
) -> None:
    @app.job("t", unique=rota.Unique(lambda: "k", scope="pending"), ordered=lambda: "g")
    def handler() -> None: ...

    app.sync()
    first = handler.enqueue()
    connection.execute(PARKED)
    with second.transaction():
        assert handler.using(second).enqueue() == rota.Enqueued(first.id, False, "waiting")
        # A promotion passes that lock, a claim does not.
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("select from rota.job for update nowait")
        connection.execute("select from rota.job for no key update nowait")


@rule("M11", "M51")
def test_a_parked_job_keeps_its_key_when_its_type_lets_go_of_those_that_began(
    app: rota.App, connection: Connection
) -> None:
    @app.job("t", unique=lambda: "k")
    def handler() -> None: ...

    first = handler.enqueue()
    connection.execute(PARKED)
    connection.execute("select rota.declare('t', key_arguments => '{}', key_scope => 'pending')")
    assert handler.enqueue() == rota.Enqueued(first.id, False, "waiting")


# Schedules


@rule("M60", "M81")
def test_the_runs_of_a_schedule_have_the_lane_of_its_arguments(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    app.schedule("code", "0 8 * * 1", invoice.new(1))
    app.sync()
    put = app.schedules.put("api", None, invoice.using(queue="q", priority=3).new(2))
    assert (app.schedules.get("code").group_key, put.group_key) == ("invoice:1", "invoice:2")
    runs = [app.schedules.trigger(name) for name in ("code", "api")]
    assert [_lane_of(connection, run) for run in runs] == [("invoice:1", 2), ("invoice:2", 2)]
    app.schedules.put("api", None, invoice.new(3))
    assert _lane_of(connection, app.schedules.trigger("api")) == ("invoice:3", 2)


@rule("M60", "M81")
@pytest.mark.usefixtures("invoice")
def test_a_schedule_by_sql_of_such_a_type_must_name_a_group_key(
    connection: Connection,
) -> None:
    put = 'select rota.schedule_put(\'{"name": "s", "job_type": "bill"%s}\', \'sql\')'
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"schedule_put: {LACKS_GROUP}"):
        connection.execute((put % "").encode())
    assert connection.execute("select count(*) from rota.schedule").fetchall() == [(0,)]
    connection.execute((put % ', "group_key": "g"').encode())
    connection.execute("select rota.schedule_trigger('s')")
    assert _lanes(connection) == [("g", 2)]


@rule("M60", "M82")
def test_a_schedule_older_than_its_types_group_key_says_at_its_tick_what_it_lacks(
    app: rota.App, connection: Connection
) -> None:
    connection.execute(
        'select rota.schedule_put(\'{"name": "s", "job_type": "t", "cron": "* * * * *"}\', \'sql\')'
    )
    connection.execute("select rota.declare('t', group_arguments => '{n}')")
    with pytest.raises(rota.UsageError, match="group_key is missing: job type 't' declares one"):
        app.schedules.trigger("s")


@rule("M81")
def test_the_job_of_a_schedule_takes_no_lane_capacity(app: rota.App, invoice: Invoice) -> None:
    with pytest.raises(rota.UsageError, match="takes no group_capacity: give it to the job type"):
        app.schedules.put("s", None, invoice.using(group_capacity=3).new(1))


# Declared in SQL


@rule("M15", "M60")
def test_a_declaration_in_sql_says_all_that_python_says(
    app: rota.App, connection: Connection
) -> None:
    @app.job(
        "python",
        ordered=rota.Ordered(
            lambda n: "g", capacity=2, while_retrying="release", after_death="halt"
        ),
        max_running=3,
    )
    def handler(n: int) -> None: ...

    app.sync()
    connection.execute(
        "select rota.declare('sql', group_arguments => '{n}', group_capacity => 2, "
        "on_retry => 'release', on_dead => 'halt', max_running => 3)"
    )
    connection.execute("select rota.declare('neither')")
    found = connection.execute(
        "select group_arguments, group_capacity, on_retry, on_dead, max_running "
        "from rota.job_type order by name"
    ).fetchall()
    assert found == [
        (None, 1, "hold", "continue", None),
        (["n"], 2, "release", "halt", 3),
        (["n"], 2, "release", "halt", 3),
    ]


@rule("M15", "M60")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("group_arguments => '{null}'", "group_arguments must be the names of arguments"),
        ("group_capacity => 0", "group_capacity must be from 1 to 1000"),
        ("group_capacity => null", "group_capacity must be from 1 to 1000"),
        ("on_retry => 'x'", "on_retry must be hold or release"),
        ("on_dead => null", "on_dead must be continue or halt"),
        ("max_running => 0", "max_running must be from 1 to 100000; leave it out for no limit"),
    ],
)
def test_a_declaration_in_sql_that_is_out_of_range_is_refused_in_words(
    connection: Connection, wrong: str, why: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"rota.declare: {why}"):
        connection.execute(f"select rota.declare('t', {wrong})".encode())
