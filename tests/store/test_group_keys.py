"""The group key that a job gets: from its type, its call, its schedule, and by every way in."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import psycopg
import pytest

import rota
from tests.store.work import Connection
from tests.support.rules import rule

Invoice = rota.JobType[..., ..., None]
Index = rota.JobType[[int], [int], None]

LACKS_GROUP = "group_key is missing: job type 'invoice' declares one, made of invoice"
PARKED = "update rota.job set status = 'waiting', run_at = rota.clock() - interval '1 minute'"


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


@pytest.fixture
def index(app: rota.App) -> Index:
    @app.job(
        "t",
        unique=rota.Unique(lambda: "k", on_duplicate="replace"),
        ordered=rota.Ordered(lambda n: f"g:{n}", capacity=2),
    )
    def index(n: int) -> None: ...

    app.sync()
    return index


def _lanes(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select group_key, group_capacity from rota.job order by id"
    ).fetchall()


def _lane_of(connection: Connection, job: int) -> tuple[Any, ...]:
    [lane] = connection.execute(
        "select group_key, group_capacity from rota.job where id = %s", [job]
    ).fetchall()
    return lane


def _state(connection: Connection) -> tuple[Any, ...]:
    [found] = connection.execute(
        "select status, in_lane, waits_for, run_at > rota.clock() - interval '30 s', "
        "run_at > rota.clock() from rota.job"
    ).fetchall()
    return found


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
def test_jobs_of_one_bulk_keep_their_own_lanes_and_what_a_call_says_counts(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    plain = app.job("plain", ordered=rota.Ordered(capacity=3))(lambda: None)
    app.sync()
    app.enqueue_many(
        [
            plain.new(),
            invoice.new(1),
            invoice.using(group_capacity=9).new(1),
            plain.using(group_key='a "b", {c} \\ d').new(),
            plain.using(key="k", group_capacity=5).new(),
            invoice.using(key="k", group_key="mine").new(2),
        ]
    )
    connection.execute("insert into rota.job (job_type) values ('plain')")
    assert _lanes(connection) == [
        (None, None),
        ("invoice:1", 2),
        ("invoice:1", 9),
        ('a "b", {c} \\ d', 3),
        (None, None),
        ("mine", 2),
        (None, None),
    ]
    # The function is not asked then.
    divides = app.job("divides", ordered=lambda n: 1 // n)(lambda n: None)
    job = app.enqueue(divides.using(group_key="other").new(0))
    assert _lane_of(connection, job.id) == ("other", 1)


async def _async_group(invoice: int) -> str:
    return f"{invoice}"


@rule("M60")
def test_what_makes_no_lane_is_refused_and_nothing_is_inserted(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    declare: Any = rota.Jobs().job
    for options, why in (
        ({"ordered": lambda invoce: ""}, "takes 'invoce', which is no argument of the handler"),
        ({"ordered": _async_group}, "must be a plain function"),
        ({"max_running": 0}, "max_running must be a whole number from 1 to 100,000"),
    ):
        with pytest.raises(rota.RotaError, match=why):
            declare("t", **options)(lambda invoice: None)
    wrong: list[dict[str, Any]] = [
        *({"group_key": key} for key in ("", "a\nb", "k" * 256, 7)), {"group_capacity": 0},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(rota.UsageError, match=r"must be (1 to 255 printable|a whole number)"):
            invoice.using(**options)
    for makes, why in (
        ("None", "what it returns must be 1 to 255 printable characters, not None"),
        ("{}['user']", "raised KeyError: 'user'"),
    ):
        makes_none = app.job(f"of {makes}", ordered=eval(f"lambda n: {makes}"))(lambda n: None)
        with pytest.raises(rota.UsageError) as refused:
            makes_none.enqueue(7)
        assert "its group_key function at <string>:1" in str(refused.value)
        assert why in str(refused.value)
    assert _lanes(connection) == []


@rule("M15", "M51", "M60")
@pytest.mark.usefixtures("invoice")
def test_an_insert_without_a_group_key_that_its_type_declares_is_refused_in_words(
    connection: Connection,
) -> None:
    for insert in (
        "insert into rota.job (job_type, payload) values ('invoice', '{\"invoice\": 1}')",
        "insert into rota.job (job_type, queue, priority) values ('invoice', 'mail', 5)",
        "insert into rota.job (job_type) values ('other'), ('bill')",
        "insert into rota.job (job_type, schedule) values ('invoice', 'nightly')",
        "select rota.enqueue('invoice')",
    ):
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            connection.execute(insert.encode())
        said = refused.value.diag
        assert said.message_primary == f"rota.job: {LACKS_GROUP}; nothing was written", insert
        assert said.constraint_name == "job_group_key"
    connection.execute(
        "select rota.worker_declare('both', key_arguments => '{id}', group_arguments => '{id,day}')"
    )
    for given, lacks in (
        ("", "group_key is missing: job type 'both' declares one, made of id, day"),
        (", idempotency_key => 'k'", "group_key is missing"),
        (", group_key => 'g'", "idempotency_key is missing: job type 'both' declares one, made of"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match=lacks):
            connection.execute(f"select rota.enqueue('both'{given})".encode())
    assert _lanes(connection) == []
    connection.execute("select rota.enqueue('both', idempotency_key => 'k', group_key => 'g')")
    assert _lanes(connection) == [("g", 1)]


@rule("M15", "M60")
@pytest.mark.usefixtures("invoice")
def test_an_insert_in_sql_gets_the_capacity_that_its_type_declares_or_is_refused(
    connection: Connection,
) -> None:
    into = "insert into rota.job"
    for insert, lane in (
        (f"{into} (job_type, group_key) values ('invoice', 'g')", ("g", 2)),
        (f"{into} (job_type, group_key) values ('bill', 'g')", ("g", 2)),
        # A row that names queue and priority counts as complete.
        (
            f"{into} (job_type, group_key, queue, priority) values ('bill', 'g', 'q', 0)",
            ("g", None),
        ),
        (f"{into} (job_type, group_key, group_capacity) values ('invoice', 'g', 5)", ("g", 5)),
        (f"{into} (job_type, group_key) values ('unknown', 'g')", ("g", None)),
        ("select rota.enqueue('invoice', group_key => 'g')", ("g", 2)),
        ("select rota.enqueue('invoice', group_key => 'g', group_capacity => 4)", ("g", 4)),
        ("select rota.enqueue('plain', group_capacity => 4)", (None, None)),
    ):
        connection.execute(insert.encode())
        assert _lanes(connection)[-1] == lane, insert
    for columns, values, why in (
        ("group_key", "repeat('k', 256)", "group_key must be 1 to 255 characters, not 256; hash"),
        ("group_key, group_capacity", "'g', 0", "group_capacity must be from 1 to 1000, not 0"),
    ):
        for change in (
            f"insert into rota.job (job_type, {columns}) values ('t', {values})",
            f"update rota.job set ({columns}) = row({values})",
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match=why):
                connection.execute(change.encode())


@rule("M21", "M60", "M87")
def test_a_job_that_runs_again_is_of_the_same_lane(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    dead = invoice.using(group_key="mine", group_capacity=5).enqueue(1)
    app.jobs.discard(dead.id)
    assert _lane_of(connection, app.retry(dead.id, again=True).id) == ("mine", 5)
    app.jobs.archive(dead.id, why="done")
    assert _lane_of(connection, app.retry(dead.id, again=True).id) == ("mine", 5)
    assert app.get(dead.id).group_key == "mine"
    [older] = connection.execute("insert into rota.job (job_type) values ('t') returning id")
    connection.execute("select rota.worker_declare('t', group_arguments => '{n}')")
    app.jobs.discard(older[0])
    assert _lane_of(connection, app.retry(older[0], again=True).id) == (None, None)
    assert _lane_of(connection, app.retry(older[0]).id) == (None, None)


# On a key that is taken


@rule("M51", "M60")
def test_a_replaced_payload_moves_the_job_to_the_lane_of_the_new_arguments(
    app: rota.App, connection: Connection, index: Index
) -> None:
    first = index.enqueue(1)
    assert index.enqueue(2) == rota.Enqueued(first.id, False, "queued", "replaced")
    assert _lanes(connection) == [("g:2", 2)]
    app.enqueue_many([index.using(group_key="x", group_capacity=4).new(4)])
    assert _lanes(connection) == [("x", 4)]
    app.enqueue("t", {"n": 5})
    assert _lanes(connection) == [("g:5", 2)]
    text, params = index.new(6).statement("pyformat")
    connection.execute(text.encode(), params)
    assert _lanes(connection) == [("g:6", 2)]


@rule("M11", "M51", "M60")
def test_a_holder_that_changes_its_lane_or_time_gives_up_its_place_and_what_it_waits_for(
    connection: Connection, index: Index
) -> None:
    index.enqueue(1)
    connection.execute(PARKED)
    assert index.enqueue(1).change == "replaced"
    assert _state(connection) == ("waiting", None, None, False, False)
    changed = index.enqueue(2)
    assert (changed.change, changed.status) == ("replaced", "queued")
    assert _state(connection) == ("queued", None, None, True, False)
    holds = PARKED + ", in_lane = true, waits_for = 'type t', waits_since = rota.clock()"
    connection.execute(holds.encode())
    assert index.enqueue(2).change == "replaced"
    assert _state(connection) == ("waiting", True, "type t", False, False)
    assert index.using(delay="1h").enqueue(2).change == "replaced"
    assert _state(connection) == ("queued", None, None, True, True)
    connection.execute(holds.encode())
    assert index.using(on_duplicate="postpone", delay="1h").enqueue(2).change == "postponed"
    assert _state(connection) == ("queued", None, None, True, True)


@rule("M11", "M51", "M60")
def test_a_parked_job_has_not_begun_and_keeps_its_key(
    app: rota.App, connection: Connection, second: Connection
) -> None:
    handler = app.job("t", unique=rota.Unique(lambda: "k", scope="pending"), ordered=lambda: "g")(
        lambda: None
    )
    app.sync()
    first = handler.enqueue()
    connection.execute(PARKED)
    with second.transaction():
        assert handler.using(second).enqueue() == rota.Enqueued(first.id, False, "waiting")
        # A promotion passes that lock, a claim does not.
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("select from rota.job for update nowait")
        connection.execute("select from rota.job for no key update nowait")
    other = app.job("other", unique=lambda: "k")(lambda: None)
    live = other.enqueue()
    connection.execute(PARKED)
    connection.execute(
        "select rota.worker_declare('other', key_arguments => '{}', key_scope => 'pending')"
    )
    assert other.enqueue() == rota.Enqueued(live.id, False, "waiting")


# Schedules


@rule("M60", "M81", "M82")
def test_the_runs_of_a_schedule_have_the_lane_of_its_arguments(
    app: rota.App, connection: Connection, invoice: Invoice
) -> None:
    app.schedule("code", "0 8 * * 1", invoice.new(1))
    app.sync()
    put = app.schedules.put("api", None, invoice.using(queue="q", priority=3).new(2))
    assert (app.schedules.get("code").group_key, put.group_key) == ("invoice:1", "invoice:2")
    runs = [app.schedules.trigger(name) for name in ("code", "api")]
    assert [_lane_of(connection, run) for run in runs] == [("invoice:1", 2), ("invoice:2", 2)]
    with pytest.raises(rota.UsageError, match="takes no group_capacity: give it to the job type"):
        app.schedules.put("s", None, invoice.using(group_capacity=3).new(1))
    in_sql = 'select rota.schedule_put(\'{"name": "s", "job_type": "bill"%s}\', \'sql\')'
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=LACKS_GROUP):
        connection.execute((in_sql % "").encode())
    connection.execute((in_sql % ', "group_key": "g"').encode())
    assert _lane_of(connection, app.schedules.trigger("s")) == ("g", 2)
    older = '{"name": "older", "job_type": "t", "cron": "* * * * *"}'
    connection.execute("select rota.schedule_put(%s, 'sql')", [older])
    connection.execute("select rota.worker_declare('t', group_arguments => '{n}')")
    with pytest.raises(rota.UsageError, match="group_key is missing: job type 't' declares one"):
        app.schedules.trigger("older")


# Declared in SQL


@rule("M15", "M60")
def test_a_declaration_in_sql_says_all_that_python_says(
    app: rota.App, connection: Connection
) -> None:
    ordered = rota.Ordered(lambda n: "g", capacity=2, while_retrying="release", after_death="halt")
    app.job("python", ordered=ordered, max_running=3)(lambda n: None)
    app.sync()
    connection.execute(
        "select rota.worker_declare('sql', group_arguments => '{n}', group_capacity => 2, "
        "on_retry => 'release', on_dead => 'halt', max_running => 3)"
    )
    connection.execute("select rota.worker_declare('neither')")
    found = connection.execute(
        "select group_arguments, group_capacity, on_retry, on_dead, max_running "
        "from rota.job_type order by name"
    ).fetchall()
    assert found == [
        (None, 1, "hold", "continue", None),
        (["n"], 2, "release", "halt", 3),
        (["n"], 2, "release", "halt", 3),
    ]
