"""Rota in a database that a publication FOR ALL TABLES replicates."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

import rota
from tests.support.rules import rule

WITHOUT = """
    select c.oid::regclass::text from pg_class c
    where c.relnamespace = 'rota'::regnamespace and c.relkind in ('r', 'p')
      and (c.relreplident = 'n' or c.relreplident = 'd' and not exists (
        select from pg_index i where i.indrelid = c.oid and i.indisprimary))"""
"""The tables from which a publication refuses DELETE, partitions as well."""


@rule("M2")
def test_every_table_and_each_later_day_has_a_replica_identity(
    connection: psycopg.Connection[TupleRow],
) -> None:
    for table in ("job_history", "attempt"):
        connection.execute("select rota.partition_ensure(%s, '2150-01-01')", [table])
    assert connection.execute(WITHOUT).fetchall() == []


@rule("M2", "M72")
def test_a_batch_ends_and_is_told_under_a_publication_of_all_tables(
    app: rota.App, connection: psycopg.Connection[TupleRow]
) -> None:
    # The server refuses whatever its wal_level is: that only decides whether it publishes.
    connection.execute("create publication everything for all tables")

    @app.job("page", max_attempts=1)
    async def page(n: int) -> None:
        if n == 0:
            raise ValueError(n)

    @app.job("report")
    async def report() -> None: ...

    app.sync()
    batch = app.batch([page.new(n) for n in range(3)], then=report.new()).id
    assert (app.drain().succeeded, app.batches.get(batch).outcome) == (3, "failed")
    [dead] = app.find(status="dead")
    app.retry(dead.id)
    connection.execute("delete from rota.job_history")
    connection.execute("update rota.attempt set message = null")
