"""A handler that commits its writes together with the success of its job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import connections, transaction
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import rota
from rota.observe.events import JobFailed, JobSucceeded, LeaseLost
from tests.support.django_site import django_database
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker import heavy
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.table import Connection, expire_leases, over, put, put_many, rows, value

POLICY = rota.Fixed("1h", jitter=0)
Context = rota.Context


@pytest.fixture(autouse=True)
def invoices(connection: Connection) -> None:
    """What the handlers write to."""
    connection.execute("create table public.invoice (job bigint)")


def written(connection: Connection) -> list[tuple[str, int]]:
    """The status of each job, and how many invoices it wrote."""
    return [
        (status, count)
        for status, count in rows(
            connection,
            "select j.status, (select count(*) from public.invoice i where i.job = j.id) "
            "from rota.jobs j order by j.id",
        )
    ]


def write(connection: psycopg.Connection, context: Context) -> None:
    connection.execute("insert into public.invoice values (%s)", [context.job.id])


async def awrite(connection: psycopg.AsyncConnection, context: Context) -> None:
    await connection.execute("insert into public.invoice values (%s)", [context.job.id])


async def drained(
    database: str, handler: Callable[..., Any], lease_s: float = 120.0, **options: Any
) -> Hand:
    """Run what is due with this handler."""
    jobs = rota.Jobs()
    jobs.job("bills", retry=POLICY, takes_context=True, **options)(handler)
    hand = Hand(database, jobs, drain=True, lease_s=lease_s)
    await hand.run()
    return hand


def ends(hand: Hand) -> list[type]:
    """How the job ended, by the worker's events."""
    return [
        type(event)
        for event in hand.events
        if isinstance(event, JobSucceeded | JobFailed | LeaseLost)
    ]


@rule("M54", "M32")
@pytest.mark.parametrize("history", ["all", "failures"])
@pytest.mark.parametrize("how", ["async", "plain", "own", "own plain"])
async def test_a_handlers_writes_and_its_success_are_committed_together(
    database: str, connection: Connection, how: str, history: Any
) -> None:
    async def bills(context: Context) -> dict[str, int]:
        async with context.transaction() as given:
            await awrite(given, context)
            assert written(connection) == [("running", 0)]
        return {"sum": 12}

    def bills_plainly(context: Context) -> dict[str, int]:
        with context.transaction() as given:
            write(given, context)
            return {"sum": 12}

    async def bills_itself(context: Context) -> dict[str, int]:
        async with await psycopg.AsyncConnection.connect(database) as own:
            await awrite(own, context)
            await context.complete(own, {"sum": 12})
        return {"late": 0}

    def bills_itself_plainly(context: Context) -> dict[str, int]:
        with psycopg.connect(database, autocommit=True) as own, own.transaction():
            write(own, context)
            context.complete(own, {"sum": 12})
        return {"late": 0}

    put(connection, "bills")
    handler = {
        "async": bills, "plain": bills_plainly,
        "own": bills_itself, "own plain": bills_itself_plainly,
    }[how]  # fmt: skip
    hand = await drained(database, handler, history=history)
    assert ends(hand) == [JobSucceeded]
    assert hand.worker.parts.finisher.counts["succeeded"] == 1
    assert value(connection, "select count(*) from public.invoice") == 1
    if history == "failures":
        assert rows(connection, "select from rota.jobs") == []
        return
    assert written(connection) == [("succeeded", 1)]
    [(result, began)] = rows(
        connection, "select result, started_at between created_at and finished_at from rota.jobs"
    )
    assert (result, began) == ({"sum": 12}, True)


@rule("M54")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_transaction_of_the_context_takes_its_result_by_complete(
    database: str, connection: Connection, is_async: bool
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            await context.complete(given, {"sum": 12})

    def bills_plainly(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)
            context.complete(given, {"sum": 12})

    put(connection, "bills")
    hand = await drained(database, bills if is_async else bills_plainly)
    assert ends(hand) == [JobSucceeded]
    assert written(connection) == [("succeeded", 1)]
    assert rows(connection, "select result from rota.jobs") == [({"sum": 12},)]


@rule("M54")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_completion_that_nobody_awaits_leaves_it_to_the_transaction(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            context.complete(given, {"sum": 12})

    put(connection, "bills")
    hand = await drained(database, bills)
    assert ends(hand) == [JobSucceeded]
    assert written(connection) == [("succeeded", 1)]


@rule("M54", "M52")
@pytest.mark.parametrize("how", ["effect", "step", "async step", "complete"])
async def test_it_is_refused_where_an_effect_or_a_step_is_open(
    database: str, connection: Connection, how: str
) -> None:
    """Otherwise the commit ends the job, and what was done stays uncertain for ever."""

    def bill(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)

    async def abill(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)

    def bills(context: Context) -> None:
        if how == "step":
            context.step("bill", bill, context)
        with context.effect("bill"):
            if how == "effect":
                bill(context)
            with psycopg.connect(database, autocommit=True) as own, own.transaction():
                write(own, context)
                context.complete(own)

    async def bills_in_a_step(context: Context) -> None:
        await context.step("bill", abill, context)

    put(connection, "bills")
    hand = await drained(database, bills_in_a_step if how == "async step" else bills)
    assert (ends(hand), written(connection)) == ([JobFailed], [("failed", 0)])
    what = "step 'bill'" if "step" in how else "effect 'bill'"
    assert f"{what} is open" in str(value(connection, "select last_error from rota.job"))


@rule("M54")
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_before_the_commit_is_an_ordinary_failure(
    database: str, connection: Connection, is_async: bool
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            raise ValueError("no such customer")

    def bills_plainly(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)
            raise ValueError("no such customer")

    put(connection, "bills")
    hand = await drained(database, bills if is_async else bills_plainly)
    assert (ends(hand), written(connection)) == ([JobFailed], [("failed", 0)])
    assert value(connection, "select last_error from rota.job") == "no such customer"


@rule("M13", "M54")
async def test_a_late_result_that_cannot_be_stored_changes_nothing_and_is_logged(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute("alter table rota.job_history add check (result <> '7')")

    async def bills(context: Context) -> int:
        async with context.transaction() as given:
            await awrite(given, context)
        return 6 + context.job.id % 2

    put_many(connection, "bills", 2)
    await drained(database, bills)
    assert {value for (value,) in rows(connection, "select result from rota.jobs")} == {6, None}
    assert "its result is not kept" in caplog.text


@rule("M54")
@pytest.mark.parametrize("history", ["all", "failures"])
async def test_an_error_after_the_commit_changes_nothing_and_is_logged(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, history: Any
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
        raise ValueError("the printer is on fire")

    put(connection, "bills")
    with caplog.at_level(logging.WARNING, "rota"):
        hand = await drained(database, bills, history=history)
    assert ends(hand) == [JobSucceeded]
    assert value(connection, "select count(*) from public.invoice") == 1
    assert rows(connection, "select from rota.job") == []
    [said] = [record.getMessage() for record in caplog.records if "printer" in record.getMessage()]
    assert "has succeeded with the commit of its transaction" in said


@rule("M54")
async def test_a_handler_that_returns_without_its_commit_has_failed(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        async with await psycopg.AsyncConnection.connect(database) as own:
            await awrite(own, context)
            await context.complete(own)
            await own.rollback()

    put(connection, "bills")
    hand = await drained(database, bills)
    assert (ends(hand), written(connection)) == ([JobFailed], [("failed", 0)])
    assert "was not committed" in str(value(connection, "select last_error from rota.job"))


@rule("M32", "M54")
async def test_an_attempt_that_lost_its_job_commits_nothing(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            # As the reaper and the next claim do.
            connection.execute("update rota.job set claims = claims + 1")

    put(connection, "bills")
    hand = await drained(database, bills)
    assert (ends(hand), written(connection)) == ([LeaseLost], [("running", 0)])


@rule("M54")
async def test_a_transaction_that_must_be_tried_again_may_complete_again(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        for is_last in (False, True):
            async with await psycopg.AsyncConnection.connect(database) as own:
                await awrite(own, context)
                await context.complete(own)
                await (own.commit() if is_last else own.rollback())

    put(connection, "bills")
    hand = await drained(database, bills)
    assert (ends(hand), written(connection)) == ([JobSucceeded], [("succeeded", 1)])


@rule("M20", "M54")
async def test_jobs_that_are_enqueued_in_it_commit_with_it(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    app = rota.App(database, jobs=[jobs])

    @jobs.job("bills", retry=POLICY, takes_context=True)
    async def bills(context: Context, fails: bool = False) -> None:
        async with context.transaction() as given:
            await bills.using(connection=given, delay="1d").aenqueue(fails=fails)
            if fails:
                raise ValueError("not this time")

    await bills.aenqueue()
    await bills.aenqueue(fails=True)
    await Hand(database, jobs, drain=True).run()
    assert rows(connection, "select status from rota.jobs order by id") == [
        ("succeeded",), ("failed",), ("queued",)
    ]  # fmt: skip
    await app.aclose()


@pytest.mark.waits
@rule("M31", "M54")
async def test_a_handler_that_goes_on_after_its_commit_is_not_stopped_for_a_lost_lease(
    database: str, connection: Connection
) -> None:
    asked: list[str | None] = []

    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
        await asyncio.sleep(1.5)  # its lease would have been renewed twice and lost
        asked.append(context.cancelled)

    put(connection, "bills")
    hand = await drained(database, bills, lease_s=1.0)
    assert (asked, ends(hand)) == ([None], [JobSucceeded])


@rule("M54")
async def test_a_connection_without_a_transaction_is_refused(
    database: str, connection: Connection
) -> None:
    def bills(context: Context) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            context.complete(own)

    put(connection, "bills")
    await drained(database, bills)
    assert "is in autocommit" in str(value(connection, "select last_error from rota.job"))


@rule("M54")
async def test_a_result_that_cannot_be_stored_is_refused(
    database: str, connection: Connection
) -> None:
    def bills(context: Context) -> None:
        with psycopg.connect(database) as own:
            context.complete(own, object())

    put(connection, "bills")
    await drained(database, bills)
    assert "the result cannot be stored" in str(
        value(connection, "select last_error from rota.job")
    )


@rule("M54")
async def test_a_commit_that_is_refused_is_a_failure(database: str, connection: Connection) -> None:
    connection.execute("alter table public.invoice add unique (job) deferrable initially deferred")

    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            await awrite(given, context)

    put(connection, "bills")
    hand = await drained(database, bills)
    assert (ends(hand), written(connection)) == ([JobFailed], [("failed", 0)])
    assert value(connection, "select error_type from rota.job") == "psycopg.errors.UniqueViolation"


@rule("M54")
@pytest.mark.parametrize(
    ("how", "status", "count"),
    [("commits", "succeeded", 1), ("raises", "failed", 0), ("dies after", "succeeded", 1)],
)
async def test_it_is_the_same_in_a_process_of_its_own(
    database: str, connection: Connection, how: str, status: str, count: int
) -> None:
    put(connection, "bills", how=how)
    hand = Hand(database, heavy.jobs, drain=True)
    await hand.run()
    assert written(connection) == [(status, count)]
    assert ends(hand) == [JobSucceeded if status == "succeeded" else JobFailed]


@pytest.mark.slow
@pytest.mark.waits
@rule("M30", "M54")
def test_of_workers_that_are_killed_at_any_point_each_job_has_one_invoice(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    put_many(connection, "bill", 400)
    invoices = "select count(*) from public.invoice"
    for _ in range(8):
        before = value(connection, invoices)
        expire_leases(connection)
        worker = start_worker(database, concurrency=20)
        eventually(lambda: value(connection, invoices) != before, what="an invoice")  # noqa: B023
        worker.kill()
    expire_leases(connection)
    start_worker(database, concurrency=20)
    eventually(lambda: over(connection) == 400, 60, what="all jobs end")
    assert rows(
        connection,
        "select j.status, count(*), count(distinct i.job) "
        "from rota.jobs j left join public.invoice i on i.job = j.id group by 1",
    ) == [("succeeded", 400, 400)]


LIBRARIES = ("asyncpg", "async session on asyncpg", "async session on psycopg", "session", "django")


@rule("M54")
@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_handler_finishes_its_job_on_a_connection_of_any_library(
    database: str, connection: Connection, library: str
) -> None:
    put(connection, "bills")
    with django_database(database) as alias:
        hand = await drained(database, _find_handler(library, database, alias))
    assert ends(hand) == [JobSucceeded]
    assert written(connection) == [("succeeded", 1)]
    assert rows(connection, "select result from rota.jobs") == [({"sum": 12},)]


def _find_handler(library: str, database: str, alias: str) -> Callable[..., Any]:
    insert = "insert into public.invoice values (%s)"

    async def with_asyncpg(context: Context) -> None:
        own = await asyncpg.connect(database)
        async with own.transaction():
            await own.execute(insert % "$1", context.job.id)
            await context.complete(own, {"sum": 12})
        await own.close()

    async def with_async_session(context: Context) -> None:
        drivername = f"postgresql+{library.rsplit(maxsplit=1)[-1]}"
        engine = create_async_engine(make_url(database).set(drivername=drivername))
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text(insert % ":job"), {"job": context.job.id})
            await context.complete(session, {"sum": 12})
        await engine.dispose()

    def with_session(context: Context) -> None:
        engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
        with Session(engine) as session, session.begin():
            session.execute(text(insert % ":job"), {"job": context.job.id})
            context.complete(session, {"sum": 12})
        engine.dispose()

    def with_django(context: Context) -> None:
        with pytest.raises(rota.UsageError, match="would be finished before your writes"):
            context.complete(alias)
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(insert, [context.job.id])
            context.complete(alias, {"sum": 12})
        connections[alias].close()

    return {
        "asyncpg": with_asyncpg, "session": with_session, "django": with_django,
    }.get(library, with_async_session)  # fmt: skip
