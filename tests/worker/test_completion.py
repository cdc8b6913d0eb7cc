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
from tests.support.wait import aeventually
from tests.worker import heavy
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value

POLICY = rota.Fixed("1h", jitter=0)
Context = rota.Context


@pytest.fixture(autouse=True)
def invoices(connection: Connection) -> None:
    """What the handlers write to."""
    connection.execute("create table public.invoice (job bigint)")


def written(connection: Connection) -> dict[str, tuple[str, int]]:
    """By job type: the status of its job, and how many invoices it wrote."""
    read = (
        "select j.job_type, j.status, (select count(*) from public.invoice i where i.job = j.id) "
        "from rota.jobs j order by j.id"
    )
    return {kind: (status, count) for kind, status, count in rows(connection, read)}


def last_error(connection: Connection, job_type: str) -> str:
    read = "select last_error from rota.jobs where job_type = %s"
    return str(value(connection, read, job_type))


def write(connection: psycopg.Connection, context: Context) -> None:
    connection.execute("insert into public.invoice values (%s)", [context.job.id])


async def awrite(connection: psycopg.AsyncConnection, context: Context) -> None:
    await connection.execute("insert into public.invoice values (%s)", [context.job.id])


async def drained(
    database: str,
    connection: Connection,
    *handlers: Callable[..., Any],
    lease_s: float = 120.0,
    **options: Any,
) -> Hand:
    """Run a job of each handler, whose type has its name."""
    jobs = rota.Jobs()
    for handler in handlers:
        jobs.job(handler.__name__, retry=POLICY, takes_context=True, **options)(handler)
        put(connection, handler.__name__)
    hand = Hand(database, jobs, drain=True, lease_s=lease_s)
    await hand.run()
    return hand


def ends(hand: Hand) -> dict[str, type]:
    """How the jobs ended, by the worker's events."""
    kinds = (JobSucceeded, JobFailed, LeaseLost)
    return {event.job_type: type(event) for event in hand.events if isinstance(event, kinds)}


@rule("M54", "M32")
@pytest.mark.parametrize("history", ["all", "failures"])
async def test_a_handlers_writes_and_its_success_are_committed_together(
    database: str, connection: Connection, history: Any
) -> None:
    async def on_a_loop(context: Context) -> dict[str, int]:
        async with context.transaction() as given:
            await awrite(given, context)
            assert (
                value(connection, "select count(*) from invoice where job = %s", context.job.id)
                == 0
            )
        return {"sum": 12}

    def plain(context: Context) -> dict[str, int]:
        with context.transaction() as given:
            write(given, context)
            return {"sum": 12}

    async def on_its_own_connection(context: Context) -> dict[str, int]:
        async with await psycopg.AsyncConnection.connect(database) as own:
            await awrite(own, context)
            await context.complete(own, {"sum": 12})
        return {"late": 0}

    def plainly_on_its_own(context: Context) -> dict[str, int]:
        with psycopg.connect(database, autocommit=True) as own, own.transaction():
            write(own, context)
            context.complete(own, {"sum": 12})
        return {"late": 0}

    async def completes_what_it_is_given(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            await context.complete(given, {"sum": 12})

    def completes_it_plainly(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)
            context.complete(given, {"sum": 12})

    handlers = (
        *(on_a_loop, plain, on_its_own_connection, plainly_on_its_own),
        *(completes_what_it_is_given, completes_it_plainly),
    )
    hand = await drained(database, connection, *handlers, history=history)
    assert ends(hand) == dict.fromkeys([handler.__name__ for handler in handlers], JobSucceeded)
    assert hand.worker.parts.finisher.counts["succeeded"] == len(handlers)
    assert value(connection, "select count(distinct job) from public.invoice") == len(handlers)
    if history == "failures":
        assert rows(connection, "select from rota.jobs") == []
        return
    assert {*written(connection).values()} == {("succeeded", 1)}
    read = (
        "select distinct result::text, started_at between created_at and finished_at from rota.jobs"
    )
    assert rows(connection, read) == [('{"sum": 12}', True)]


@rule("M54", "M52")
async def test_it_is_refused_where_an_effect_or_a_step_is_open(
    database: str, connection: Connection
) -> None:
    """Otherwise the commit ends the job, and what was done stays uncertain for ever."""

    def bill(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)

    async def abill(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)

    def in_a_step(context: Context) -> None:
        context.step("bill", bill, context)

    async def in_an_async_step(context: Context) -> None:
        await context.step("bill", abill, context)

    def in_an_effect(context: Context) -> None:
        with context.effect("a bill"):
            bill(context)

    def completes_in_an_effect(context: Context) -> None:
        with (
            context.effect("another bill"),
            psycopg.connect(database, autocommit=True) as own,
            own.transaction(),
        ):
            write(own, context)
            context.complete(own)

    handlers = in_a_step, in_an_async_step, in_an_effect, completes_in_an_effect
    await drained(database, connection, *handlers)
    for handler in handlers:
        name = handler.__name__
        assert written(connection)[name] == ("failed", 0)
        what = "step 'bill'" if "step" in name else "bill'"
        assert f"{what} is open" in last_error(connection, name)


@rule("M54")
async def test_a_transaction_that_is_not_committed_is_a_failure_with_its_reason(
    database: str, connection: Connection
) -> None:
    connection.execute("alter table public.invoice add unique (job) deferrable initially deferred")

    async def raises_before_its_end(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            raise ValueError("no such customer")

    def plainly_raises_before_its_end(context: Context) -> None:
        with context.transaction() as given:
            write(given, context)
            raise ValueError("no such customer")

    async def is_refused_by_the_commit(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            await awrite(given, context)

    def cannot_store_its_result(context: Context) -> None:
        with psycopg.connect(database) as own:
            write(own, context)
            context.complete(own, object())

    reasons = {
        raises_before_its_end: "no such customer",
        plainly_raises_before_its_end: "no such customer",
        is_refused_by_the_commit: "duplicate key value",
        cannot_store_its_result: "the result cannot be stored",
    }
    hand = await drained(database, connection, *reasons)
    for handler, reason in reasons.items():
        name = handler.__name__
        assert (ends(hand)[name], written(connection)[name]) == (JobFailed, ("failed", 0))
        assert reason in last_error(connection, name)


@rule("M54")
async def test_a_handler_that_returns_without_its_commit_has_failed(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        async with await psycopg.AsyncConnection.connect(database) as own:
            await awrite(own, context)
            await context.complete(own)
            await own.rollback()

    hand = await drained(database, connection, bills)
    assert (ends(hand), written(connection)) == ({"bills": JobFailed}, {"bills": ("failed", 0)})
    assert "was not committed" in last_error(connection, "bills")


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

    await drained(database, connection, bills)
    assert written(connection) == {"bills": ("succeeded", 1)}


@rule("M32", "M54")
async def test_an_attempt_that_lost_its_job_commits_nothing(
    database: str, connection: Connection
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
            # As the reaper and the next claim do.
            connection.execute("update rota.job set claims = claims + 1")

    hand = await drained(database, connection, bills)
    assert (ends(hand), written(connection)) == ({"bills": LeaseLost}, {"bills": ("running", 0)})


@rule("M54")
async def test_a_connection_without_a_transaction_is_refused(
    database: str, connection: Connection
) -> None:
    def bills(context: Context) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            context.complete(own)

    await drained(database, connection, bills)
    assert "is in autocommit" in last_error(connection, "bills")


# After the commit


@rule("M54")
@pytest.mark.parametrize("history", ["all", "failures"])
async def test_an_error_after_the_commit_changes_nothing_and_is_logged(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, history: Any
) -> None:
    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
        raise ValueError("the printer is on fire")

    with caplog.at_level(logging.WARNING, "rota"):
        hand = await drained(database, connection, bills, history=history)
    assert ends(hand) == {"bills": JobSucceeded}
    assert value(connection, "select count(*) from public.invoice") == 1
    assert rows(connection, "select from rota.job") == []
    [said] = [record.getMessage() for record in caplog.records if "printer" in record.getMessage()]
    assert "has succeeded with the commit of its transaction" in said


@rule("M31", "M54")
async def test_a_handler_that_goes_on_after_its_commit_is_not_stopped_for_a_lost_lease(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.lease_keeper.RENEWALS_A_LEASE", 60)
    asked: list[str | None] = []
    is_over = asyncio.Event()
    lease = "select locked_until from rota.job"

    async def renewal() -> None:
        old = await asyncio.to_thread(value, connection, lease)
        await aeventually(lambda: value(connection, lease) != old)

    async def bills(context: Context) -> None:
        async with context.transaction() as given:
            await awrite(given, context)
        for _ in range(2):  # its own lease would have been renewed, and found lost
            await renewal()
        asked.append(context.cancelled)
        is_over.set()

    async def beside(context: Context) -> None:
        await is_over.wait()

    hand = await drained(database, connection, beside, bills, lease_s=20.0)
    assert (asked, {*ends(hand).values()}) == ([None], {JobSucceeded})


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


# With processes


@pytest.mark.nightly
@rule("M54")
async def test_it_is_the_same_in_a_process_of_its_own(
    database: str, connection: Connection
) -> None:
    jobs = {how: put(connection, "bills", how=how) for how in ("commits", "raises", "dies after")}
    await Hand(database, heavy.jobs, drain=True, slots=1).run()
    read = (
        "select j.id, j.status, (select count(*) from public.invoice i where i.job = j.id) "
        "from rota.jobs j order by j.id"
    )
    assert rows(connection, read) == [
        (jobs["commits"], "succeeded", 1),
        (jobs["raises"], "failed", 0),
        (jobs["dies after"], "succeeded", 1),
    ]


# On a connection of any library


@rule("M54")
async def test_a_handler_finishes_its_job_on_a_connection_of_any_library(
    database: str, connection: Connection
) -> None:
    insert = "insert into public.invoice values (%s)"

    async def with_asyncpg(context: Context) -> None:
        own = await asyncpg.connect(database)
        async with own.transaction():
            await own.execute(insert % "$1", context.job.id)
            await context.complete(own, {"sum": 12})
        await own.close()

    async def with_async_session(context: Context, driver: str) -> None:
        engine = create_async_engine(make_url(database).set(drivername=f"postgresql+{driver}"))
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text(insert % ":job"), {"job": context.job.id})
            await context.complete(session, {"sum": 12})
        await engine.dispose()

    async def with_async_session_on_asyncpg(context: Context) -> None:
        await with_async_session(context, "asyncpg")

    async def with_async_session_on_psycopg(context: Context) -> None:
        await with_async_session(context, "psycopg")

    def with_session(context: Context) -> None:
        engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
        with Session(engine) as session, session.begin():
            session.execute(text(insert % ":job"), {"job": context.job.id})
            context.complete(session, {"sum": 12})
        engine.dispose()

    with django_database(database) as alias:

        def with_django(context: Context) -> None:
            with pytest.raises(rota.UsageError, match="would be finished before your writes"):
                context.complete(alias)
            with transaction.atomic(using=alias):
                with connections[alias].cursor() as cursor:
                    cursor.execute(insert, [context.job.id])
                context.complete(alias, {"sum": 12})
            connections[alias].close()

        handlers = (
            *(with_asyncpg, with_async_session_on_asyncpg, with_async_session_on_psycopg),
            *(with_session, with_django),
        )
        hand = await drained(database, connection, *handlers)
    assert ends(hand) == dict.fromkeys([handler.__name__ for handler in handlers], JobSucceeded)
    assert {*written(connection).values()} == {("succeeded", 1)}
    assert rows(connection, "select distinct result::text from rota.jobs") == [('{"sum": 12}',)]
