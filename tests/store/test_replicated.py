"""Rota in a database that a publication FOR ALL TABLES replicates."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from tests.support.rules import rule

WITHOUT = """
    select c.oid::regclass::text from pg_class c
    where c.relnamespace = 'rota'::regnamespace and c.relkind in ('r', 'p')
      and (c.relreplident = 'n' or c.relreplident = 'd' and not exists (
        select from pg_index i where i.indrelid = c.oid and i.indisprimary))"""
"""The tables from which a publication refuses DELETE, partitions as well."""


@rule("M2")
def test_every_table_and_each_later_day_has_a_replica_identity(
    shared: psycopg.Connection[TupleRow],
) -> None:
    for table in ("job_history", "attempt"):
        shared.execute("select rota.partition_ensure(%s, '2150-01-01')", [table])
    assert shared.execute(WITHOUT).fetchall() == []
