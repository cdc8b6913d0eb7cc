import csv
import hashlib
import io
from typing import Any

import psycopg
import rota

app = rota.App()
PORTION = 1000
PUT = """
    insert into contact (email, name) values (%s, %s)
    on conflict (email) do update set name = excluded.name
"""


def take_file(connection: psycopg.Connection[Any], name: str, content: bytes) -> rota.Enqueued:
    """Store an uploaded file, and enqueue its import, in the transaction of the request."""
    query = "insert into upload (name, content) values (%s, %s) returning id"
    [(upload,)] = connection.execute(query, [name, content]).fetchall()
    key = f"import:{hashlib.sha256(content).hexdigest()}"
    return import_contacts.using(connection, key=key).enqueue(upload)


@app.job(takes_context=True, timeout="10m", unique=rota.Unique(scope="live"))
def import_contacts(ctx: rota.Context, upload: int) -> int:
    with ctx.transaction() as connection:
        query = "select content from upload where id = %s"
        [(content,)] = connection.execute(query, [upload]).fetchall()
        rows = read_rows(content)
        for start in range(0, len(rows), PORTION):
            ctx.progress(start, len(rows), "rows")
            connection.cursor().executemany(PUT, rows[start : start + PORTION])
    return len(rows)


def read_rows(content: bytes) -> list[tuple[str, str]]:
    """Return address and name of each line; name the lines that are wrong."""
    try:
        lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise rota.Dead(f"this is no CSV in UTF-8: {error}") from error
    rows = [(line.get("email") or "", line.get("name") or "") for line in lines]
    wrong = [number for number, (email, _) in enumerate(rows, start=2) if "@" not in email]
    if wrong:
        shown = ", ".join(map(str, wrong[:20]))
        raise rota.Dead(f"{len(wrong)} lines have no address in the column email: {shown}")
    return rows
