from typing import Any

import psycopg
import rota

app = rota.App()


# A minute after the last change: each change starts the minute anew.


@app.job(
    unique=rota.Unique("index:{doc}", scope="pending", on_duplicate="postpone"),
    takes_context=True,
)
def index_doc(ctx: rota.Context, doc: int) -> None:
    with ctx.transaction() as connection:
        connection.execute(
            "insert into search select id, text from doc where id = %s"
            " on conflict (doc) do update set text = excluded.text",
            [doc],
        )


def save_doc(connection: psycopg.Connection[Any], doc: int, text: str) -> None:
    connection.execute(
        "insert into doc values (%s, %s) on conflict (id) do update set text = excluded.text",
        [doc, text],
    )
    index_doc.using(connection, delay="1m").enqueue(doc)


# Ten minutes after the first event: what comes meanwhile goes into the same digest.


@app.job(unique=rota.Unique("digest:{user}", scope="pending"), takes_context=True)
def make_digest(ctx: rota.Context, user: int) -> int:
    with ctx.transaction() as connection:
        rows = connection.execute(
            "delete from notice where user_id = %s returning text", [user]
        ).fetchall()
        if rows:
            text = "\n".join(sorted(text for (text,) in rows))
            connection.execute("insert into digest values (%s, %s)", [user, text])
        return len(rows)


def notify(connection: psycopg.Connection[Any], user: int, text: str) -> None:
    connection.execute("insert into notice values (%s, %s)", [user, text])
    make_digest.using(connection, delay="10m").enqueue(user)
