"""What a checker says of the connections that `using` takes. `E:` names the errors of mypy and of basedpyright."""

from __future__ import annotations

import asyncpg
import psycopg
import sqlmodel
from django.db import connection, connections
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlmodel.ext.asyncio.session import AsyncSession as SqlModelAsyncSession

import rota

jobs = rota.Jobs()
app = rota.App(jobs=[jobs])


@jobs.job("mail", transactional=True)
def mail(user_id: int) -> None: ...


def plain(session: Session, own: psycopg.Connection, engine: Engine) -> None:
    mail.using(session).enqueue(1)
    mail.using(own, delay="5m").enqueue(1)
    mail.using(connection=connections["default"]).enqueue(1)
    mail.using(connection).enqueue(1)
    mail.using("default").enqueue(1)
    mail.new(1).using(session)
    app.enqueue_many([mail.new(1)], connection=session)
    app.cancel(1, connection=own)
    mail.using(engine)  # E: arg-type | reportArgumentType
    mail.using(None)  # E: arg-type | reportArgumentType
    mail.using(object())  # E: arg-type | reportArgumentType


async def asynchronous(session: AsyncSession, own: asyncpg.Connection, core: AsyncConnection) -> None:
    await mail.using(session).aenqueue(1)
    await mail.using(own).aenqueue(1)
    await mail.using(core).aenqueue(1)
    await app.aenqueue_many([mail.new(1)], connection=session)
    app.enqueue_many([mail.new(1)], connection=session)  # E: arg-type | reportArgumentType


def statement() -> None:
    sql, by_name = mail.new(1).statement()
    by_name["payload"]
    sql, by_place = mail.new(1).statement("qmark")
    by_place[0]
    by_place["payload"]  # E: call-overload | reportCallIssue, reportArgumentType
    mail.new(1).statement("dollar")  # E: call-overload | reportCallIssue, reportArgumentType
    print(sql)


async def kinds(
    pool: asyncpg.Pool,
    registry: scoped_session[Session],
    aregistry: async_scoped_session[AsyncSession],
    model: sqlmodel.Session,
    amodel: SqlModelAsyncSession,
    core: Connection,
) -> None:
    async with pool.acquire() as lent:
        await mail.using(lent).aenqueue(1)
    mail.using(registry)
    mail.using(aregistry)
    mail.using(model)
    mail.using(amodel)
    app.cancel(1, connection=registry)
    app.cancel(1, connection=core)
    await app.acancel(1, connection=aregistry)
