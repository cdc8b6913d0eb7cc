"""A harness on the connections of Django and SQLAlchemy, as their own test cases make them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError as DjangoIntegrityError
from django.db import connections, transaction
from psycopg.rows import TupleRow
from sqlalchemy import Connection as SqlAlchemyConnection
from sqlalchemy import MetaData, create_engine, make_url, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import rota
from rota.testing import Harness
from tests.support.django_site import django_database
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
LINE = "insert into public.line values ('a')"


class Base(DeclarativeBase):
    """Tables of the application."""

    metadata = MetaData(schema="public")


class Line(Base):
    """A row of the application's."""

    __tablename__ = "line"
    text: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def app() -> rota.App:
    """An App whose own database cannot be reached: nothing may need it."""
    return rota.App("postgresql://nobody@127.0.0.1:1/none", release="1")


@pytest.fixture(autouse=True)
def seen(connection: Connection) -> Iterator[Connection]:
    """What others see after each test: nothing."""
    connection.execute("create table public.line (text text primary key)")
    yield connection
    tables = ("rota.job", "rota.job_history", "public.line")
    counted = [connection.execute(f"select count(*) from {table}").fetchone() for table in tables]
    assert counted == [(0,)] * 3


@pytest.fixture
def alias(database: str) -> Iterator[str]:
    """A database of Django's, in the two blocks of its TestCase."""
    with django_database(database) as alias:
        outer, inner = transaction.atomic(using=alias), transaction.atomic(using=alias)
        with outer:
            with inner:
                yield alias
                transaction.set_rollback(True, using=alias)
            transaction.set_rollback(True, using=alias)
        connections[alias].close()
        del connections[alias]


@pytest.fixture
def nested(database: str) -> Iterator[SqlAlchemyConnection]:
    """A connection in a transaction that sessions join."""
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        outer = connection.begin()
        yield connection
        if outer.is_active:
            outer.rollback()
    engine.dispose()


@pytest.fixture(params=["psycopg", "asyncpg"])
async def anested(database: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncConnection]:
    """An async connection in a transaction."""
    url = make_url(database).set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        outer = await connection.begin()
        yield connection
        await outer.rollback()
    await engine.dispose()


def run(alias: str, sql: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)


@rule("M50")
def test_an_error_of_a_model_of_django_s_is_a_failed_attempt_and_the_test_goes_on(
    app: rota.App, alias: str
) -> None:
    @app.job("write")
    def write() -> None:
        # As `Model.save` does.
        with transaction.mark_for_rollback_on_error(using=alias):
            run(alias, LINE)
            run(alias, LINE)

    with Harness(app, connection=alias) as harness:
        done = harness.perform(write.new())
        assert done.status == "failed"
        assert isinstance(done.error, DjangoIntegrityError)
        run(alias, LINE)
        assert harness.perform(done.id).attempt == 2


def test_the_transaction_of_a_context_is_psycopg_s_beneath_django_and_sqlalchemy(
    app: rota.App, alias: str, nested: SqlAlchemyConnection
) -> None:
    @app.job("write", takes_context=True)
    def write(context: rota.Context, text: str) -> None:
        with context.transaction() as connection:
            connection.execute("insert into public.line values (%s)", [text])

    targets: list[Any] = [alias, connections[alias]]
    for text_, target in zip("ab", targets, strict=True):
        with Harness(app, connection=target) as harness:
            assert harness.perform(write.new(text_)).error is None
    with connections[alias].cursor() as cursor:
        cursor.execute("select text from public.line order by 1")
        assert cursor.fetchall() == [("a",), ("b",)]
    session = Session(nested, join_transaction_mode="create_savepoint")
    targets = [session, nested]
    with session:
        for text_, target in zip("cd", targets, strict=True):
            with Harness(app, connection=target) as harness:
                assert harness.perform(write.new(text_)).error is None
        lines = session.scalars(text("select text from public.line order by 1"))
        assert lines.all() == ["c", "d"]


async def test_the_transaction_of_an_async_context_is_psycopg_s_or_refused(
    app: rota.App, anested: AsyncConnection
) -> None:
    @app.job("write", takes_context=True)
    async def write(context: rota.Context) -> None:
        async with context.transaction() as connection:
            await connection.execute("insert into public.line values (%s)", ["a"])

    with Harness(app, connection=anested) as harness:
        done = await harness.aperform(write.new())
    if anested.dialect.driver == "asyncpg":
        assert isinstance(done.error, rota.UsageError)
        assert "gives a connection of psycopg's, and the test's is one of asyncpg's" in str(
            done.error
        )
    else:
        assert done.error is None
        assert (await anested.scalars(text("select text from public.line"))).all() == ["a"]


@rule("M50")
def test_a_session_in_savepoints_commits_and_rolls_back_within_the_attempt(
    app: rota.App, nested: SqlAlchemyConnection
) -> None:
    session = Session(nested, join_transaction_mode="create_savepoint")

    @app.job("write")
    def write(fails: bool) -> None:
        session.add(Line(text="lost"))
        session.flush()
        session.rollback()
        session.add(Line(text="kept"))
        session.commit()
        if fails:
            session.add(Line(text="kept"))
            session.commit()

    with Harness(app, connection=nested) as harness:
        assert harness.perform(write.new(False)).status == "succeeded"
        session.execute(text("delete from public.line"))
        session.commit()
        session.expunge_all()
        done = harness.perform(write.new(True))
        assert isinstance(done.error, IntegrityError)
        assert done.status == "failed"
    session.close()


@rule("M50")
@pytest.mark.parametrize("way", ["flush", "rollback", "savepoint"])
def test_a_handler_that_ends_the_transaction_of_the_test_has_not_succeeded(
    app: rota.App, nested: SqlAlchemyConnection, way: str
) -> None:
    # Without savepoints a session that rolls back rolls back the test's transaction; with them,
    # and if the session itself is the test's, all that it has done, also the job.
    with_savepoints = way == "savepoint"
    mode: Any = "create_savepoint" if with_savepoints else "rollback_only"
    session = Session(nested, join_transaction_mode=mode)

    @app.job("write")
    def write() -> None:
        session.execute(text(LINE))
        if way == "flush":
            session.add(Line(text="a"))
            session.flush()
        session.rollback()

    with (
        Harness(app, connection=session if with_savepoints else nested) as harness,
        pytest.raises(rota.UsageError, match="has ended the test's transaction") as refused,
    ):
        harness.perform(write.new())
    assert isinstance(refused.value.__cause__, IntegrityError if way == "flush" else type(None))
    session.close()


def test_a_handler_that_commits_or_rolls_back_the_test_s_own_connection_is_told(
    app: rota.App, database: str, connection: Connection
) -> None:
    with psycopg.connect(database) as own:

        @app.job("write")
        def write(way: str) -> None:
            getattr(own, way)()

        for way in ("commit", "rollback"):
            with (
                Harness(app, connection=own) as harness,
                pytest.raises(rota.UsageError, match="has ended the test's transaction"),
            ):
                harness.perform(write.new(way))
            own.rollback()
    connection.execute("delete from rota.job")


async def test_a_handler_that_cancels_itself_has_failed_and_a_cancelled_test_is_cancelled(
    app: rota.App, anested: AsyncConnection
) -> None:
    began = asyncio.Event()

    @app.job("cancel")
    async def cancel() -> None:
        raise asyncio.CancelledError

    @app.job("wait")
    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    with Harness(app, connection=anested) as harness:
        done = await harness.aperform(cancel.new())
        assert (done.status, repr(done.error)) == ("failed", "CancelledError()")
        task = asyncio.create_task(harness.aperform(wait.new()))
        await asyncio.wait_for(began.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
