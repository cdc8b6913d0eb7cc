"""The blocks of transactions.md work, on each of the libraries, and those of enqueue-by-name.md and
database-url.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import connections, transaction
from psycopg.rows import TupleRow
from sqlalchemy import MetaData, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import rota
from tests.docs.reader import read_page
from tests.support.django_site import django_database
from tests.support.rules import rule

PAGE = "".join(map(read_page, ("transactions.md", "enqueue-by-name.md", "database-url.md")))
SESSION, ASYNC, ASYNCPG, DJANGO, NEEDED, NAMED, STATEMENT, LATE = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)
[SQL] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
Names = dict[str, Any]


class Base(DeclarativeBase):
    """Tables of the application."""

    metadata = MetaData(schema="public")


class User(Base):
    """A user."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture
def names(database: str, connection: psycopg.Connection[TupleRow]) -> Iterator[Names]:
    """What the application of the page has."""
    app = rota.App(database)
    connection.execute("create table public.users (id serial primary key, name text)")

    @app.job("welcome")
    def welcome(user_id: int) -> None: ...

    yield {"app": app, "rota": rota, "User": User, "welcome": welcome}
    app.close()


@pytest.fixture
def both(connection: psycopg.Connection[TupleRow]) -> Callable[[], int]:
    """How many users and jobs others see, which are always as many."""

    def count() -> int:
        found = connection.execute(
            "select (select count(*) from public.users), (select count(*) from rota.job)"
        ).fetchone()
        assert found is not None and found[0] == found[1]
        return int(found[0])

    return count


def read(block: str, names: Names) -> Names:
    """Run a block of the page, which is ours."""
    exec(block, names)
    return names


@rule("M20")
def test_the_sign_up_of_the_page_commits_the_user_and_the_job_together(
    database: str, names: Names, both: Any
) -> None:
    sign_up = read(SESSION, names)["sign_up"]
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with Session(engine) as session:
        sign_up(session, "Ada")
        session.rollback()
        assert both() == 0
        sign_up(session, "Ada")
        session.commit()
    engine.dispose()
    assert both() == 1


@rule("M20")
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_the_sign_up_of_the_page_with_an_async_session(
    database: str, names: Names, both: Any, driver: str
) -> None:
    sign_up = read(ASYNC, names)["sign_up_async"]
    engine = create_async_engine(make_url(database).set(drivername=f"postgresql+{driver}"))
    async with AsyncSession(engine) as session:
        await sign_up(session, "Ada")
    await engine.dispose()
    assert both() == 1


@rule("M20")
async def test_the_sign_up_of_the_page_with_asyncpg(database: str, names: Names, both: Any) -> None:
    sign_up = read(ASYNCPG, names)["sign_up_asyncpg"]
    async with asyncpg.create_pool(database, min_size=1) as pool:
        await sign_up(pool, "Ada")
    assert both() == 1


@rule("M20")
def test_the_sign_up_of_the_page_with_django(database: str, names: Names, both: Any) -> None:
    with django_database(database) as alias:
        read(DJANGO, names)
        default = connections["default"]
        connections["default"] = connections[alias]
        try:
            names["sign_up_django"]("Ada")
            with transaction.atomic():
                names["sign_up_django"]("Ada")
                transaction.set_rollback(True)
        finally:
            connections[alias].close()
            del connections[alias]
            connections["default"] = default
    assert both() == 1


@rule("M20")
def test_the_transactional_type_of_the_page_is_refused_without_a_connection(names: Names) -> None:
    with pytest.raises(rota.UsageError, match="transactional"):
        read(NEEDED, names)["charge"].enqueue(7)


def test_the_statement_of_the_page_is_the_one_that_it_shows(
    names: Names, connection: psycopg.Connection[TupleRow]
) -> None:
    read(STATEMENT, names)
    shown = SQL.partition("  …")[0]
    assert names["sql"].startswith(shown) and names["params"]["idempotency_key"] == "welcome:42"


def test_a_job_is_enqueued_by_name_as_on_the_page(names: Names) -> None:
    read(NAMED, names)
    assert names["app"].get(1).job_type == "rebuild_report"


def test_the_url_of_the_page_is_read_when_it_is_needed(database: str, names: Names) -> None:
    names["read_secret"] = lambda name: {"database-url": database}[name]
    late = read(LATE, names)["late"]
    assert late.find() == []
    late.close()
