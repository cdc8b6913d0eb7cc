"""A role that may create functions in Rota's schema can make none of Rota's run them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from rota.cli import run
from rota.errors import ConfigurationError, SchemaError
from rota.observe.doctor import Level, examine
from rota.store.db import Database
from rota.store.migrate import as_sql, migrate
from rota.store.statements import RESERVED, check_schema
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

INLINED = {
    "alert_names", "alive_until", "buckets_sum", "claim_refusal", "clock", "is_alive",
    "is_in_force", "job_refusal", "job_take", "jobs_insert", "key_take", "last_seen",
    "lease_default", "must_record_start", "paused_queues", "payload_bytes_max", "schedules_read",
    "time_bucket", "uptime", "utc_text",
}  # fmt: skip
"""Functions without a path of their own: their callers have one, or they call nothing. None of them
runs with another's rights."""


@pytest.fixture
def stranger(admin: Connection, connection: Connection) -> Iterator[str]:
    """A role that may use the schema, and create objects in it."""
    name = f"stranger_{uuid4().hex[:12]}"
    role = sql.Identifier(name)
    admin.execute(sql.SQL("create role {} login").format(role))
    connection.execute(sql.SQL("grant usage, create on schema rota to {}").format(role))
    yield name
    connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(role))


@rule("M45")
def test_every_function_looks_up_nothing_but_the_servers_own(connection: Connection) -> None:
    functions = connection.execute(
        "select proname, prosecdef, "
        "coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false), "
        "exists (select from unnest(proconfig) c where c like 'search_path=%') "
        "from pg_proc where pronamespace = 'rota'::regnamespace"
    ).fetchall()
    assert len(functions) > 100
    assert {name for name, _, is_safe, _ in functions if not is_safe} == INLINED
    for name, has_owners_rights, is_safe, has_path in functions:
        assert is_safe or not (has_owners_rights or has_path), name


@rule("M45")
@pytest.mark.parametrize(
    ("signature", "result", "call"),
    [
        (
            "array_append(text[], text)",
            "text[]",
            "select * from rota.key_holders(array['t'], array['k'])",
        ),
        (
            "format(text, text)",
            "text",
            "select * from rota.enqueue(repeat('x', 201))",
        ),
        (
            "format(text, int)",
            "text",
            "select * from rota.enqueue('t', queue => repeat('x', 101))",
        ),
    ],
    ids=["array_append", "format a text", "format a number"],
)
def test_an_overload_of_a_strangers_is_not_run_with_the_owners_rights(
    database: str, connection: Connection, stranger: str, signature: str, result: str, call: str
) -> None:
    connection.execute(
        sql.SQL(
            "grant execute on all functions in schema rota to {0}; "
            "insert into rota.job_type (name, aliases) values ('t', '{{former}}'); "
            "insert into rota.job (job_type, idempotency_key) values ('t', 'k')"
        ).format(sql.Identifier(stranger))
    )
    said: list[str] = []
    with psycopg.connect(make_conninfo(database, user=stranger), autocommit=True) as evil:
        evil.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        evil.execute(
            f"create function rota.{signature} returns {result} language plpgsql as $$ begin "
            "raise warning 'ran as %', current_user; return null; end $$".encode()
        )
        with suppress(psycopg.errors.CheckViolation):
            evil.execute(call.encode())
    assert said == []


@rule("M45")
@pytest.mark.parametrize("who", ["public", "stranger"])
def test_a_schema_in_which_others_may_create_is_refused_and_named(
    database: str, connection: Connection, stranger: str, who: str
) -> None:
    revoke = sql.SQL("revoke create on schema rota from {}").format(sql.Identifier(stranger))
    if who == "public":
        connection.execute(revoke)
        connection.execute("grant create on schema rota to public")
    name = "PUBLIC" if who == "public" else stranger
    with pytest.raises(SchemaError, match=f"REVOKE CREATE ON SCHEMA rota FROM {name}"):
        migrate(database)
    with pytest.raises(psycopg.errors.RaiseException, match=f"from {name}"):
        connection.execute(as_sql().encode())
    finding = examine(Database(database), only=["privileges"])["privileges"]
    assert finding.level == Level.BAD and name in finding.what
    connection.execute(finding.what_to_do.encode())
    assert examine(Database(database), only=["privileges"])["privileges"].level == Level.OK
    migrate(database)
    connection.execute(as_sql(after=1).encode())


@rule("M3")
def test_no_reserved_word_is_a_schemas_name(
    connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    reserved = connection.execute(
        "select word from pg_get_keywords() where catcode in ('R', 'T', 'C')"
    ).fetchall()
    assert {word for (word,) in reserved} <= RESERVED
    for name in ("order", "user", "time", "left"):
        with pytest.raises(ConfigurationError, match="reserved word"):
            check_schema(name)
        assert run(["migrate", "--sql", "--schema", name]) == 3
    assert "reserved word" in capsys.readouterr().err
    assert check_schema("jobs") == "jobs"
