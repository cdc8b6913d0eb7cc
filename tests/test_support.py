"""What the tests stand on."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tests.support.databases import Databases
from tests.support.server import PostgresServer


def test_no_test_is_given_a_database_that_could_not_be_made(server: PostgresServer, admin: psycopg.Connection[TupleRow]) -> None:
    template = sql.Identifier(name := f"template_{uuid4().hex[:12]}")
    admin.execute(sql.SQL("create database {}").format(template))
    with Databases(server.url(), name) as databases:
        with databases.one():
            pass
        admin.execute(sql.SQL("drop database {}").format(template))
        for _ in range(3):
            with suppress(psycopg.Error), databases.one() as made:
                assert admin.execute("select from pg_database where datname = %s", [made]).fetchone() is not None
