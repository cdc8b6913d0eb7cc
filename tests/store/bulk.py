"""A table that is loaded as a bulk load does it: its indexes come after its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.rows import TupleRow

from tests.support.guard import locked
from tests.support.server import PostgresServer

_INDEXES = """
select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index
where indrelid = %s::regclass and not indisprimary
"""
_FORGET = """
update pg_class c set relpages = 1, reltuples = 0 from pg_index i
where i.indexrelid = c.oid and i.indrelid = %s::regclass
"""


@contextmanager
def no_load_beside(server: PostgresServer) -> Iterator[None]:
    """Have no bulk load but one's own in this block, in any database of the server: the index
    entries of rows that are gone are skipped only once no older transaction of the server runs.
    """
    with locked(server.place / "load.lock"):
        yield


@contextmanager
def without_indexes(connection: psycopg.Connection[TupleRow], table: str) -> Iterator[None]:
    """Drop the indexes of a table but its primary key, and make them again after the block: that
    takes two thirds of the time.

    The planner then knows no more than if each row had been inserted: no statistics of the table,
    and those of an index that was made empty.
    """
    indexes = connection.execute(_INDEXES, [table]).fetchall()
    for name, _ in indexes:
        connection.execute(f"drop index {name}".encode())
    yield
    for _, definition in indexes:
        connection.execute(definition.encode())
    connection.execute(_FORGET, [table])
