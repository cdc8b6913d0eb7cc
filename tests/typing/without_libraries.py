"""A program that has psycopg and no other library of connections: no checker finds an error in it."""

from __future__ import annotations

import psycopg
import rota

app = rota.App(lambda: "postgresql://h/d", require_connection=True)


@app.job("mail", queue="email")
def mail(user_id: int) -> None: ...


def plain(own: psycopg.Connection) -> rota.Enqueued:
    mail.using(connection=own).enqueue(1)
    mail.using(own, priority=5).new(1)
    app.cancel(1, connection=own)
    app.enqueue("x", {"a": 1}, own)
    sql, params = mail.new(1).statement("format")
    print(sql, params)
    return mail.using(own).enqueue(1)


async def later(own: psycopg.AsyncConnection) -> None:
    await mail.using(own).aenqueue(1)
    await app.aenqueue_many([mail.new(1)], connection=own)


def wrapper(connection: rota.records.Connection) -> None:
    mail.using(connection).enqueue(1)
