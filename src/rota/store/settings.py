"""The settings of a schema: the payload limit, how long rows are kept, and the archive. The
database keeps them, so that every worker does the same. `rota migrate` changes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import psycopg
from psycopg import sql

from rota.declare.jsonb import PAYLOAD_BYTES_LEAST
from rota.errors import SchemaError
from rota.store.statements import check_schema

PAYLOAD_BYTES_MOST = 16_777_216


def check_payload_limit(payload_bytes_max: int | None) -> None:
    """Raise SchemaError if this cannot be the limit; None: it stays as it is."""
    if (
        payload_bytes_max is not None
        and not PAYLOAD_BYTES_LEAST <= payload_bytes_max <= PAYLOAD_BYTES_MOST
    ):
        raise SchemaError(
            f"the payload limit must be from {PAYLOAD_BYTES_LEAST:,} to {PAYLOAD_BYTES_MOST:,} "
            f"bytes, not {payload_bytes_max:,}"
        )


def change_settings(
    connection: psycopg.Connection,
    schema: str,
    payload_bytes_max: int | None,
    keep: Mapping[str, timedelta],
    archive: str | None,
) -> None:
    """Change what is given, in the transaction of `migrate`, whose arguments these are; None:
    unchanged. Raises SchemaError if partitions cannot move to the archive."""
    if payload_bytes_max is not None:
        connection.execute(
            sql.SQL(
                "create or replace function {}.payload_bytes_max() returns int language sql "
                "stable parallel safe as {}"
            ).format(sql.Identifier(schema), sql.Literal(f"select {payload_bytes_max}"))
        )
    for what, period in keep.items():
        connection.execute(
            sql.SQL(
                "insert into {}.retention (what, keep) values (%s, %s) on conflict (what) do "
                "update set keep = excluded.keep"
            ).format(sql.Identifier(schema)),
            [what, period],
        )
    if archive is not None:
        if archive:
            _ensure_archive(connection, schema, archive)
        connection.execute(
            sql.SQL("update {}.installation set archive = %s").format(sql.Identifier(schema)),
            [archive or None],
        )


def _ensure_archive(connection: psycopg.Connection, schema: str, archive: str) -> None:
    """Create the archive if it is missing. Raises SchemaError if partitions cannot move there."""
    if check_schema(archive) == schema:
        raise SchemaError(f"the archive must be another schema than Rota's own, {schema!r}")
    identifier, user = sql.Identifier(archive), connection.info.user
    row = connection.execute("select to_regnamespace(%s) is not null", [archive]).fetchone()
    try:
        if row is not None and not row[0]:
            connection.execute(sql.SQL("create schema {}").format(identifier))
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(
            f"role {user!r} may not create schema {archive!r}: let a superuser run "
            f"CREATE SCHEMA {archive} AUTHORIZATION {user}"
        ) from error
    row = connection.execute("select has_schema_privilege(%s, 'CREATE')", [archive]).fetchone()
    if row is not None and not row[0]:
        raise SchemaError(
            f"role {user!r} may not move tables to schema {archive!r}: "
            f"GRANT USAGE, CREATE ON SCHEMA {archive} TO {user}"
        )
