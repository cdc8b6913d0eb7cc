"""What `using(connection=…)` takes from each library, and what it refuses in words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import asyncpg
import django.db
import psycopg
import pytest
import sqlmodel
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from psycopg import sql
from psycopg_pool import ConnectionPool
from sqlalchemy import Engine, MetaData, create_engine, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from sqlmodel.ext.asyncio.session import AsyncSession as SqlModelAsyncSession

import rota
from tests.store.work import Connection, count
from tests.support.django_site import django_database
from tests.support.rules import rule

Mail = rota.JobType[[int], [int], None]


@pytest.fixture
def mail(app: rota.App) -> Mail:
    @app.job("mail")
    def mail(user_id: int) -> None: ...

    return mail


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def aengine(database: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    url = make_url(database).set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


@pytest.fixture
def alias(database: str) -> Iterator[str]:
    """The alias of the database in Django, for this thread."""
    with django_database(database) as alias:
        yield alias
        connections[alias].close()
        del connections[alias]


# SQLAlchemy


class Base(DeclarativeBase):
    metadata = MetaData(schema="public")


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


@rule("M20")
def test_an_enqueue_flushes_nothing_and_begins_the_transaction_of_the_session(
    mail: Mail, engine: Engine, connection: Connection
) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(User(id=1, name="Ada"))
        mail.using(session).enqueue(1)
        assert session.in_transaction() and session.new
        session.commit()
        session.add(User(id=2, name="Ada"))
        mail.using(session).enqueue(2)
        with pytest.raises(IntegrityError):
            session.commit()
    assert count(connection) == 1
    assert connection.execute("select count(*) from public.users").fetchone() == (1,)


@rule("M20")
def test_the_sessions_that_a_registry_and_sqlmodel_make_are_taken(
    mail: Mail, engine: Engine, connection: Connection
) -> None:
    registry = scoped_session(sessionmaker(engine))
    mail.using(registry).enqueue(1)
    registry.rollback()
    mail.using(registry).enqueue(1)
    registry.commit()
    registry.remove()
    with sqlmodel.Session(engine) as session:
        mail.using(session).enqueue(2)
        session.commit()
    with engine.begin() as begun:
        mail.new(3).using(begun)
        app_enqueued = mail.using(begun).enqueue_many([{"user_id": 3}, {"user_id": 4}])
        assert len(app_enqueued) == 2
    assert count(connection) == 4


@rule("M20")
async def test_the_async_sessions_that_a_registry_and_sqlmodel_make_are_taken(
    mail: Mail, aengine: AsyncEngine, connection: Connection
) -> None:
    maker = async_sessionmaker(aengine)
    registry = async_scoped_session(maker, scopefunc=asyncio.current_task)
    await mail.using(registry).aenqueue(1)
    await registry.commit()
    await registry.remove()
    async with SqlModelAsyncSession(aengine) as session, session.begin():
        await mail.using(session).aenqueue(2)
    async with aengine.begin() as begun:
        await mail.using(begun, delay="5m").aenqueue_many([{"user_id": 3}, {"user_id": 4}])
    assert count(connection) == 4


@rule("M20")
async def test_a_hook_of_an_async_session_enqueues_on_the_plain_session_that_it_gets(
    mail: Mail, aengine: AsyncEngine, connection: Connection
) -> None:
    async with AsyncSession(aengine) as session:
        await session.run_sync(lambda plain: mail.using(plain).enqueue(1))
        await session.commit()
    async with aengine.begin() as begun:
        await begun.run_sync(lambda plain: mail.using(plain).enqueue(1))
    assert count(connection) == 2


@rule("M20")
async def test_autocommit_of_sqlalchemy_is_refused_and_nothing_inserted(
    mail: Mail, engine: Engine, aengine: AsyncEngine, connection: Connection
) -> None:
    said = "is in AUTOCOMMIT: the job would be there before your commit"
    plain = engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(plain) as session, pytest.raises(rota.UsageError, match=said):
        await asyncio.to_thread(mail.using(session).enqueue, 1)
    with engine.connect() as begun:
        begun.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(rota.UsageError, match=said):
            await asyncio.to_thread(mail.using(begun).enqueue, 1)
    other = aengine.execution_options(isolation_level="AUTOCOMMIT")
    async with AsyncSession(other) as asession:
        with pytest.raises(rota.UsageError, match=said):
            await mail.using(asession).aenqueue(1)
    assert count(connection) == 0


@rule("M20")
@pytest.mark.parametrize("option", [{"stream_results": True}, {"yield_per": 1}])
def test_a_connection_that_streams_its_results_takes_jobs(
    app: rota.App, mail: Mail, engine: Engine, option: dict[str, Any]
) -> None:
    with Session(engine.execution_options(**option)) as session:
        job = mail.using(session, key="k").enqueue(1)
        assert mail.using(session, key="k").enqueue(1).id == job.id
        assert len(mail.using(session).enqueue_many([{"user_id": 2}, {"user_id": 3}])) == 2
        assert app.cancel(job.id, connection=session) is rota.Status.CANCELLED
        session.commit()
    assert len(app.find()) == 3


def test_a_session_of_several_engines_or_of_another_database_is_refused(
    mail: Mail, engine: Engine
) -> None:
    with Session(binds={User: engine}) as session:
        with pytest.raises(rota.UsageError, match="has no engine of its own; pass the connection"):
            mail.using(session).enqueue(1)
        bound = session.connection(bind_arguments={"mapper": User})
        assert mail.using(bound).enqueue(1).created
    said = r"is on sqlite\+pysqlite; Rota needs"
    with Session(create_engine("sqlite://")) as lite, pytest.raises(rota.UsageError, match=said):
        mail.using(lite).enqueue(1)


# asyncpg


@rule("M20")
async def test_a_connection_that_a_pool_of_asyncpg_lends_is_taken_also_without_its_cache(
    database: str, mail: Mail, connection: Connection
) -> None:
    async with asyncpg.create_pool(database, min_size=1, statement_cache_size=0) as pool:
        async with pool.acquire() as lent:
            with suppress(ZeroDivisionError):
                async with lent.transaction():
                    await mail.using(lent).aenqueue(1)
                    raise ZeroDivisionError
            async with lent.transaction():
                await mail.using(lent, key="k").aenqueue(2)
                with suppress(ZeroDivisionError):
                    async with lent.transaction():
                        await mail.using(lent).aenqueue(3)
                        raise ZeroDivisionError
        with pytest.raises(rota.UsageError, match=r"not asyncpg\.pool\.Pool; acquire a"):
            await mail.using(pool).aenqueue(4)  # type: ignore[arg-type]
    assert count(connection) == 1


@rule("M20")
async def test_codecs_of_the_application_s_do_not_touch_what_rota_sends(
    database: str, app: rota.App, mail: Mail
) -> None:
    own = await asyncpg.connect(database)
    for kind in ("jsonb", "timestamptz", "interval", "int4"):
        await own.set_type_codec(
            kind, schema="pg_catalog", encoder=lambda _: "wrong", decoder=lambda _: "wrong"
        )
    job = await mail.using(own, delay="1h", timeout="5m", priority=3, meta={"a": 1}).aenqueue(1)
    found = (await app.afind())[0]
    assert (found.id, found.priority, found.meta) == (job.id, 3, {"a": 1})
    assert await app.acancel(job.id, connection=own) is rota.Status.CANCELLED
    await own.close()
    await app.aclose()


# Django


@rule("M21")
def test_a_bulk_on_a_copy_of_django_s_connection_is_all_or_nothing(
    mail: Mail, alias: str, connection: Connection
) -> None:
    copy = connections[alias].copy()
    try:
        with pytest.raises(rota.UsageError, match="not the connection that Django has for"):
            mail.using(copy).enqueue_many([{"user_id": 1}])
        assert count(connection) == 0
        copy.set_autocommit(False)
        mail.using(copy).enqueue_many([{"user_id": 1}])
        assert count(connection) == 0
        copy.commit()
    finally:
        copy.close()
    assert count(connection) == 1


@rule("M20")
def test_an_atomic_block_of_django_takes_its_jobs_along_also_a_nested_one(
    mail: Mail, alias: str, connection: Connection
) -> None:
    with suppress(ZeroDivisionError), transaction.atomic(using=alias):
        mail.using(alias).enqueue(1)
        raise ZeroDivisionError
    with transaction.atomic(using=alias):
        mail.using(connections[alias]).enqueue(2)
        with suppress(ZeroDivisionError), transaction.atomic(using=alias):
            mail.using(connection=alias).enqueue(3)
            raise ZeroDivisionError
        proxy = django.utils.connection.ConnectionProxy(connections, alias)
        assert count(connection) == 0
        mail.using(proxy).enqueue_many([{"user_id": 4}])
    assert count(connection) == 2


def test_django_sees_each_statement_and_may_refuse_it(
    mail: Mail, alias: str, connection: Connection
) -> None:
    seen: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    own = connections[alias]
    own.force_debug_cursor = True
    with own.execute_wrapper(note):
        mail.using(alias).enqueue(1)
    assert len(seen) == 1 and "insert into rota.job" in seen[0]
    assert "insert into rota.job" in own.queries[-1]["sql"]
    with transaction.atomic(using=alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(transaction.TransactionManagementError):
            mail.using(alias).enqueue(1)
    connection.execute("alter table rota.job add constraint mine check (priority <> 7)")
    with pytest.raises(django.db.IntegrityError):
        mail.using(alias, priority=7).enqueue(1)


@rule("M20")
def test_a_worker_is_the_role_that_django_assumes(database: str, connection: Connection) -> None:
    role = "its \\ own'er"
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    with django_database(database, assume_role=role, options="-c jit=off") as alias:
        own = rota.App(connections[alias])._database.conninfo("test")
        with psycopg.connect(own) as worker:
            assert worker.execute("select current_user").fetchone() == (role,)
        del connections[alias]
    connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


async def test_async_code_reaches_django_s_connection_in_its_thread(
    mail: Mail, database: str, connection: Connection
) -> None:
    with django_database(database) as alias:
        with pytest.raises(rota.UsageError, match="sync_to_async"):
            await mail.using(alias).aenqueue(1)
        with (
            pytest.raises(SynchronousOnlyOperation),
            pytest.warns(RuntimeWarning, match="blocks the running event loop"),
        ):
            mail.using(alias).enqueue(1)

        def sign_up() -> None:
            with transaction.atomic(using=alias):
                mail.using(alias).enqueue(1)
            connections[alias].close()

        await sync_to_async(sign_up)()
    assert count(connection) == 1


# Choices


async def test_what_lends_connections_is_refused(
    database: str, mail: Mail, engine: Engine, aengine: AsyncEngine
) -> None:
    lenders: list[Any] = [engine, sessionmaker(engine), ConnectionPool(database, open=False)]
    for lender in lenders:
        with pytest.raises(rota.UsageError):
            await asyncio.to_thread(mail.using(lender).enqueue, 1)
    lenders = [aengine, async_sessionmaker(aengine), aengine.connect()]
    for lender in lenders:
        with pytest.raises(rota.UsageError):
            await mail.using(lender).aenqueue(1)


LEAN = """
import sys
sys.modules["greenlet"] = None  # as where SQLAlchemy is installed without its extra `asyncio`
import psycopg, rota
app = rota.App(sys.argv[1])
app.job("mail")(lambda user_id: None)
mail = app.types["mail"]
with psycopg.connect(sys.argv[1]) as connection:
    mail.using(connection).enqueue(1)
assert not {"asyncpg", "sqlalchemy", "django"} & sys.modules.keys()
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session
engine = create_engine(make_url(sys.argv[1]).set(drivername="postgresql+psycopg"))
with Session(engine) as session, session.begin():
    mail.using(session).enqueue(2)
app.close()
"""


@pytest.mark.nightly
@rule("M20")
def test_no_library_of_an_application_is_imported_before_its_connection_is_there_and_no_greenlet(
    database: str, connection: Connection
) -> None:
    subprocess.run([sys.executable, "-c", LEAN, database], timeout=60, check=True)
    assert count(connection) == 2
