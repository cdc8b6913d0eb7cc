"""Where the story plays: a database of its own, with rows and files that are there before."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

DATABASE = "rota_demo"
MARK = "Made by `rota demo`, which drops it when it starts."
OLD_ORDERS = 10_000
SESSIONS, EXPIRED = 3_000, 1_200
FILES, STALE = 300, 120
INVOICES, OVERDUE = 12, 5


class StoryError(Exception):
    """The story cannot play here, or went wrong; the message says why."""


def make_database(connection: psycopg.Connection, url: str) -> str:
    """Make the database anew, and return its URL.

    Raises StoryError: the database is somebody else's, is in use, or must not be made.
    """
    row = connection.execute(
        "select shobj_description(oid, 'pg_database') from pg_database where datname = %s",
        [DATABASE],
    ).fetchone()
    if row not in (None, (MARK,)):
        raise StoryError(
            f"the demo makes the database {DATABASE}, and there is one that is not its own: "
            "rename it, or name another server in ROTA_DATABASE_URL"
        )
    name = sql.Identifier(DATABASE)
    try:
        connection.execute(sql.SQL("drop database if exists {}").format(name))
        connection.execute(sql.SQL("create database {}").format(name))
        connection.execute(sql.SQL("comment on database {} is {}").format(name, sql.Literal(MARK)))
    except (psycopg.errors.ObjectInUse, psycopg.errors.UniqueViolation) as error:
        raise StoryError(
            "another demo plays here, or somebody looks at its database: "
            f"{error.diag.message_primary}"
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoryError(
            f"the demo needs the right to make the database {DATABASE}: "
            f"{error.diag.message_primary}; ALTER ROLE … CREATEDB, or unset ROTA_DATABASE_URL for "
            "a private server"
        ) from None
    others = {key: value for key, value in conninfo_to_dict(url).items() if key != "dbname"}
    return f"postgresql:///{DATABASE}?{urlencode(others, quote_via=quote)}"


def last_sunday(now: datetime) -> datetime:
    """Return five in the afternoon of the last Sunday whose Monday is over."""
    day = now - timedelta(days=2)
    day -= timedelta(days=(day.weekday() + 1) % 7)
    return day.replace(hour=17, minute=0, second=0, microsecond=0)


def fill(connection: psycopg.Connection, files: Path, now: datetime) -> None:
    """Make what a shop has after some time: users, orders, sessions, invoices, files."""
    connection.execute(
        """insert into shop_user (email, name)
           select format('old%s@shop.example', n), format('Old %s', n)
           from generate_series(1, 40) n"""
    )
    connection.execute(
        """insert into shop_order (user_id, cents, day)
           select 1 + n %% 40, 100 + n, %s::date - 1 - n %% 30 from generate_series(1, %s) n""",
        [now.date(), OLD_ORDERS],
    )
    connection.execute(
        """insert into shop_session (user_id, expires_at)
           select 1, %s + case when n <= %s then interval '-1 h' else interval '1 d' end
           from generate_series(1, %s) n""",
        [now, EXPIRED, SESSIONS],
    )
    connection.execute(
        """insert into shop_invoice (user_id, cents, due_on, paid)
           select n, 990, %s::date + case when n <= %s then -3 else 3 end, false
           from generate_series(1, %s) n""",
        [now.date(), OVERDUE, INVOICES],
    )
    (files / "tmp").mkdir()
    for number in range(FILES):
        file = files / "tmp" / f"upload-{number:03}.tmp"
        file.write_bytes(b"\0" * 1_024)
        changed = now - timedelta(days=2) if number < STALE else now
        os.utime(file, (changed.timestamp(), changed.timestamp()))
    (files / "uploads").mkdir()
    contacts = "email,name\nada@import.example,Ada\nnobody,Nobody\n"
    (files / "uploads" / "contacts.csv").write_text(contacts)


def real_now() -> datetime:
    return datetime.now(UTC)
