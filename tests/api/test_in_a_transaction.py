"""Enqueues that must be part of a transaction of the application's, and statements for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import connections, transaction
from msgspec import UNSET
from psycopg.rows import TupleRow, dict_row
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

import rota
from tests.support.django_site import django_database
from tests.support.rules import rule

Mail = rota.JobType[[int], [int], None]
Connection = psycopg.Connection[TupleRow]


def declare(app: rota.App, **options: Any) -> Mail:
    """A job type of one argument."""

    def mail(user_id: int) -> None: ...

    declared: Mail = app.job("mail", **options)(mail)
    return declared


def count(connection: Connection) -> int:
    """How many jobs others see."""
    found = connection.execute("select count(*) from rota.job").fetchone()
    assert found is not None
    return int(found[0])


CALLS: dict[str, Callable[[rota.App, Mail, Any], Any]] = {
    "enqueue": lambda app, mail, given: mail.using(given).enqueue(1),
    "enqueue_many": lambda app, mail, given: mail.using(given).enqueue_many([{"user_id": 1}]),
    "app.enqueue": lambda app, mail, given: app.enqueue(mail.new(1).using(given)),
    "app.enqueue_many": lambda app, mail, given: app.enqueue_many([mail.new(1)], connection=given),
    "by name": lambda app, mail, given: app.enqueue("mail", {"user_id": 1}, given),
}
ACALLS: dict[str, Callable[[rota.App, Mail, Any], Any]] = {
    "aenqueue": lambda app, mail, given: mail.using(given).aenqueue(1),
    "app.aenqueue_many": lambda app, mail, given: app.aenqueue_many(
        [mail.new(1)], connection=given
    ),
    "by name": lambda app, mail, given: app.aenqueue("mail", {"user_id": 1}, given),
}


@rule("M20")
def test_a_transactional_type_is_enqueued_in_a_transaction_or_not_at_all(
    app: rota.App, database: str, connection: Connection
) -> None:
    mail = declare(app, transactional=True)
    with psycopg.connect(database, autocommit=True) as own:
        for made, (name, call) in enumerate(CALLS.items()):
            with pytest.raises(
                rota.UsageError, match=r"'mail' is transactional, .* name the connection"
            ):
                call(app, mail, UNSET)
            with pytest.raises(
                rota.UsageError, match="the job would be inserted before your writes"
            ):
                call(app, mail, own)
            assert count(connection) == made, name
            with own.transaction():
                call(app, mail, own)
    assert count(connection) == len(CALLS)


@rule("M20")
async def test_a_transactional_type_is_enqueued_in_an_async_transaction_or_not_at_all(
    app: rota.App, database: str, connection: Connection
) -> None:
    mail = declare(app, transactional=True)
    own = await asyncpg.connect(database)
    for made, (name, call) in enumerate(ACALLS.items()):
        with pytest.raises(rota.UsageError, match="'mail' is transactional"):
            await call(app, mail, UNSET)
        with pytest.raises(rota.UsageError, match="the job would be inserted before your writes"):
            await call(app, mail, own)
        assert count(connection) == made, name
        async with own.transaction():
            await call(app, mail, own)
    await own.close()
    await app.aclose()
    assert count(connection) == len(ACALLS)


@rule("M20")
def test_a_transactional_type_needs_an_atomic_block_in_django(app: rota.App, database: str) -> None:
    mail = declare(app, transactional=True)
    with django_database(database) as alias:
        with pytest.raises(rota.UsageError, match=r"with transaction\.atomic\(\)"):
            mail.using(alias).enqueue(1)
        connections[alias].close()
        del connections[alias]


@rule("M20")
def test_an_app_that_requires_a_connection_refuses_each_enqueue_without_one(
    database: str, connection: Connection
) -> None:
    app = rota.App(database, require_connection=True)
    mail = declare(app)
    with pytest.raises(rota.UsageError, match="this App has require_connection=True"):
        app.enqueue("unknown")
    for made, (name, call) in enumerate(CALLS.items()):
        with pytest.raises(rota.UsageError, match="this App has require_connection=True"):
            call(app, mail, UNSET)
        assert count(connection) == made, name
        with psycopg.connect(database) as own:
            call(app, mail, own)
    assert count(connection) == len(CALLS)
    app.close()


@rule("M20")
def test_a_connection_that_is_none_is_refused(app: rota.App, connection: Connection) -> None:
    mail, nothing = declare(app), "the connection is None, so the job would not be in"

    def enqueue_by_name_of_option(app: rota.App, mail: Mail, given: Any) -> None:
        mail.using(connection=given).enqueue(1)

    for call in (*CALLS.values(), enqueue_by_name_of_option):
        with pytest.raises(rota.UsageError, match=nothing):
            call(app, mail, None)
    for acall in ACALLS.values():
        with pytest.raises(rota.UsageError, match=nothing):
            asyncio.run(acall(app, mail, None))
    assert count(connection) == 0


def test_a_schedule_and_a_requeue_need_no_transaction(
    database: str, connection: Connection
) -> None:
    app = rota.App(database, require_connection=True)
    fails = declare(app, transactional=True, max_attempts=1)
    app.schedule("nightly", None, fails.new(1))
    app.sync()
    triggered = app.schedules.trigger("nightly")
    app.jobs.discard(triggered, why="for the test")
    assert app.retry(triggered).created
    app.close()


# Statements

AT = datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC)


def new(app: rota.App) -> rota.records.NewJob:
    """A job with every option."""
    mail = declare(app, version=2, upgrade={1: lambda payload: payload}, timeout="1m", queue="q:1")
    return mail.using(
        run_at=AT, priority=7, max_attempts=3, timeout="90s", expires="1h30m", meta={"a": "100%?"},
        key="k:1", on_duplicate="replace",
    ).new(1)  # fmt: skip


def check(app: rota.App, row: Any) -> None:
    """The row that was inserted is that of `new`."""
    [job] = app.find()
    assert (row[0], row[1], row[2], row[3]) == (job.id, True, "queued", None)
    assert (job.queue, job.run_at, job.priority, job.max_attempts) == ("q:1", AT, 7, 3)
    assert (job.payload, job.meta, job.payload_version) == ({"user_id": 1}, {"a": "100%?"}, 2)
    assert (job.idempotency_key, job.timeout_s) == ("k:1", 90)
    assert job.expires_at is not None and (job.expires_at - AT).total_seconds() == 5_400
    app.close()


@rule("M20", "M15")
def test_a_statement_inserts_the_job_through_psycopg(app: rota.App, connection: Connection) -> None:
    sql, params = new(app).statement("pyformat")
    with connection.transaction():
        row = connection.execute(sql.encode(), params).fetchone()
    check(app, row)


@rule("M20", "M15")
def test_a_statement_inserts_the_job_through_asyncpg(app: rota.App, database: str) -> None:
    sql, params = new(app).statement("numeric_dollar")

    async def insert() -> tuple[Any, ...]:
        own = await asyncpg.connect(database)
        [row] = await own.fetch(sql, *params)
        await own.close()
        return tuple(row)

    check(app, asyncio.run(insert()))


@rule("M20", "M15")
def test_a_statement_inserts_the_job_through_sqlalchemy(app: rota.App, database: str) -> None:
    sql, params = new(app).statement()
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with engine.begin() as own:
        row = own.execute(text(sql), params).one()
    engine.dispose()
    check(app, row)


@rule("M20")
def test_each_style_has_its_marks_and_an_unknown_one_is_refused() -> None:
    job = declare(rota.App("postgresql:///x")).new(1)
    for style, mark in (
        ("qmark", "?"), ("numeric", ":1"), ("format", "%s"), ("named", ":job_type"),
    ):  # fmt: skip
        sql, params = job.statement(style)  # type: ignore[call-overload]
        assert f"job_type => cast({mark} as text)" in sql
        assert len(params) == sql.count(" as text)")
    with pytest.raises(rota.UsageError, match="no paramstyle 'dollar'; there are named, pyformat"):
        job.statement("dollar")  # type: ignore[call-overload]


@rule("M21", "M51")
def test_a_statement_keeps_a_delay_by_the_database_s_clock_and_the_schema_of_the_app(
    app: rota.App, database: str
) -> None:
    with psycopg.connect(database, row_factory=dict_row) as own:
        job = declare(app).using(delay="1h", expires="1d", key="k").new(1)
        sql, params = job.statement("pyformat")
        first, second = (own.execute(sql.encode(), params).fetchone() for _ in range(2))
    assert first is not None and second is not None
    assert (second["id"], second["created"]) == (first["id"], False)
    found = app.get(first["id"])
    assert (found.run_at - found.created_at).total_seconds() == pytest.approx(3_600, abs=5)
    assert found.expires_at is not None
    assert (found.expires_at - found.run_at).total_seconds() == pytest.approx(86_400, abs=1)
    elsewhere = declare(rota.App(database, schema="other")).new(1)
    assert "from other.enqueue(" in elsewhere.statement()[0]
    app.close()


# By name


@rule("M15", "M21")
def test_a_job_is_enqueued_by_name_without_its_handler_as_the_database_declares_its_type(
    app: rota.App, database: str, connection: Connection
) -> None:
    declare(app, queue="email", priority=4, unique=rota.Unique(on_duplicate="replace"))
    app.sync()
    front = rota.App(database)
    first = front.enqueue("mail", {"user_id": 1, "at": AT}, key="k")
    found = front.get(first.id)
    assert (found.queue, found.priority) == ("email", 4)
    assert found.payload == {"user_id": 1, "at": "2999-01-02T03:04:05Z"}
    again = front.enqueue("mail", {"user_id": 2}, key="k")
    assert (again.id, again.change) == (first.id, "replaced")
    with psycopg.connect(database) as own:
        front.enqueue("unknown", None, own, delay="1h")
        own.rollback()
    assert count(connection) == 1
    front.close()
    app.close()


@rule("M33")
async def test_a_name_that_almost_is_that_of_a_type_is_a_warning_and_another_name_is_none(
    app: rota.App,
) -> None:
    for name in ("mail", "send_mail"):
        app.job(name)(lambda: None)
    for mistyped, meant in (("mial", "mail"), ("send_mails", "send_mail")):
        said = f"no job type '{mistyped}'; did you mean '{meant}'"
        with pytest.warns(RuntimeWarning, match=said) as caught:
            job = await app.aenqueue(mistyped)
        assert (job.created, caught[0].filename) == (True, __file__)
    for name in ("send_sms", "email_all", "report"):
        assert (await app.aenqueue(name)).created


@rule("M12")
def test_by_name_the_type_s_checks_apply_if_the_app_has_it(app: rota.App) -> None:
    declare(app, unique=lambda user_id: f"user:{user_id}", aliases=("letter",))
    with pytest.raises(rota.PayloadError, match="user_id"):
        app.enqueue("mail", {"user_id": "one"})
    done = app.enqueue("letter", {"user_id": 1})
    assert app.get(done.id).idempotency_key == "user:1"
    assert app.get(done.id).job_type == "mail"
    wrong: Any = [1]
    with pytest.raises(rota.UsageError, match="the arguments must be a mapping, not"):
        app.enqueue("mail", wrong)
    with pytest.raises(rota.PayloadError, match="a object cannot be stored"):
        app.enqueue("unknown", {"a": object()})
    with pytest.raises(rota.UsageError, match="a job has no option"):
        app.enqueue("unknown", {}, prio=1)  # type: ignore[call-overload]
    with pytest.raises(rota.PayloadError, match="over the limit"):
        app.enqueue("unknown", {"a": "x" * 70_000})
    app.close()


# Reads


@rule("M20")
def test_a_transaction_reads_the_job_that_it_enqueued(app: rota.App, database: str) -> None:
    mail = declare(app)
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with (
        psycopg.connect(database) as own,
        Session(engine) as session,
        django_database(database) as alias,
        transaction.atomic(alias),
    ):
        for given in (own, session, alias):
            id_ = mail.using(given, meta={"by": "me"}).enqueue(1).id
            [job] = app.find(job_type="mail", connection=given)
            assert job == app.get(id_, connection=given)
            assert (job.id, job.payload, job.meta) == (id_, {"user_id": 1}, {"by": "me"})
            assert app.jobs.timeline(id_, connection=given).entries[0].what == "enqueued"
            with pytest.raises(rota.JobNotFound, match="its transaction has not committed yet"):
                app.get(id_)
        transaction.set_rollback(True, alias)
    connections[alias].close()
    engine.dispose()
