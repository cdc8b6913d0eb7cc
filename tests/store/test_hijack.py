"""A role that may create functions in Rota's schema can make none of Rota's run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from rota.cli import run
from rota.errors import ConfigurationError, SchemaError
from rota.model.job import Action
from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level
from rota.store import ops
from rota.store.db import Database
from rota.store.migrate import Definition, as_sql, definitions, migrate
from rota.store.statements import RESERVED, Function, check_schema, read_function
from tests.store.work import FAIL, SUCCEED, Hand, act, expire, insert
from tests.support.role import login_role
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

INLINED = {
    "alive_until", "asks_key", "asks_value", "buckets_sum", "caller",
    "channel_of", "clock", "is_alive", "is_in_force", "is_no_rows_fault", "job_refusal",
    "job_row_is_plain", "job_take", "jobs_insert", "key_take", "last_seen", "lease_default",
    "liveness_of", "moment", "must_record_start", "paused_queues", "payload_bytes_max", "room_name",
    "time_bucket", "types_asking", "uptime", "utc_text", "was_drain",
}  # fmt: skip
"""Functions without a path of their own: their callers have one, or they call nothing. None of them
runs with another's rights."""

OURS = {
    made.name: read_function(made.text)
    for made in definitions()
    if "create or replace function" in made.text
}
_OVERLOADS = """
do $do$ declare v_row record; begin
  for v_row in
    select p.proname, pg_get_function_result(p.oid) as result, string_agg(
      format('%I %s%s', p.proargnames[n],
        case when n = at.place then at.other else format_type(p.proargtypes[n - 1], null) end,
        case when n > at.place and n > p.pronargs - p.pronargdefaults then ' default null' end),
      ', ' order by n) as arguments
    from pg_proc p
    cross join lateral (
      select n, other
      from generate_series(1, p.pronargs) n
      join pg_type t on t.oid = p.proargtypes[n - 1]
      cross join lateral (
        select format_type(s.oid, null) || case when t.typcategory = 'A' then '[]' else '' end
        from pg_cast c
        join pg_type s on s.oid = c.castsource
        where c.casttarget = case when t.typcategory = 'A' then t.typelem else t.oid end
          and c.castsource <> c.casttarget
          and c.castcontext = 'i'
          and s.typname not like 'pg%'
        union
        select 'text' where t.typcategory <> 'S'
      ) o(other)
    ) at(place, other)
    cross join generate_series(1, p.pronargs) n
    where p.pronamespace = 'rota'::regnamespace
      and p.prorettype <> 'trigger'::regtype
    group by p.oid, p.proname, at.place, at.other
  loop
    execute format('create function rota.%I(%s) returns %s language plpgsql as $$ begin '
      'raise ''hijacked by %s''; end $$', v_row.proname, v_row.arguments, v_row.result,
      v_row.proname);
  end loop;
end $do$"""
"""Each function again with another type for one argument: one that would be cast to the right one,
or text, which PostgreSQL prefers for a literal and for a NULL without a type."""


@pytest.fixture
def stranger(admin: Connection, database: str) -> Iterator[str]:
    """A role that may use the schema, and create objects in it."""
    with login_role(admin, database, "grant usage, create on schema rota to {}") as name:
        yield name


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
def test_an_overload_of_a_strangers_is_not_run_with_the_owners_rights(
    database: str, connection: Connection, stranger: str
) -> None:
    connection.execute(
        sql.SQL(
            "grant execute on all functions in schema rota to {0}; "
            "grant insert (job_type) on rota.job to {0}; "
            "insert into rota.job_type (name, aliases) values ('t', '{{former}}'); "
            "insert into rota.job (job_type, idempotency_key) values ('t', 'k')"
        ).format(sql.Identifier(stranger))
    )
    said: list[str] = []
    with psycopg.connect(make_conninfo(database, user=stranger), autocommit=True) as evil:
        evil.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        for signature, result in (
            ("array_append(text[], text)", "text[]"),
            ("format(text, text)", "text"),
            ("format(text, int)", "text"),
        ):
            evil.execute(
                f"create function rota.{signature} returns {result} language plpgsql as $$ begin "
                "raise warning 'ran as %', current_user; return null; end $$".encode()
            )
        for call in (
            "select * from rota.key_holders(array['t'], array['k'])",
            "select * from rota.enqueue(repeat('x', 201))",
            "select * from rota.enqueue('t', queue => repeat('x', 101))",
        ):
            with suppress(psycopg.errors.CheckViolation):
                evil.execute(call.encode())
    assert said == []


def _calls(made: Definition) -> Iterator[tuple[Function, list[str]]]:
    """The calls of Rota's own functions in the text of a definition, with their arguments."""
    text = re.sub(r"--.*", "", made.text)
    for found in re.finditer(r"(?<!function )\{schema\}\.(\w+)\(", text):
        if found[1] not in OURS:
            continue
        arguments, is_quoted, depth = [""], False, 1
        for sign in text[found.end() :]:
            is_quoted ^= sign == "'"
            depth += 0 if is_quoted else (sign in "([") - (sign in ")]")
            if not depth:
                break
            if sign == "," and depth == 1 and not is_quoted:
                arguments.append("")
            else:
                arguments[-1] += sign
        yield OURS[found[1]], [argument.strip() for argument in arguments if argument.strip()]


@rule("M45")
def test_a_call_of_our_own_function_names_the_type_of_each_literal() -> None:
    for function, arguments in chain.from_iterable(map(_calls, definitions())):
        for place, argument in enumerate(arguments):
            named = re.fullmatch(r"(\w+) => (.*)", argument, re.DOTALL)
            value = named[2] if named else argument
            kind = dict(function.arguments)[named[1]] if named else function.arguments[place][1]
            assert not re.fullmatch(r"null|'[^']*'", value), (function.name, argument)
            assert not re.fullmatch(r"-?[\d.]+", value) or kind == "int", (function.name, argument)


@rule("M45")
def test_an_overload_that_was_planted_is_called_by_none_of_our_functions(
    database: str, connection: Connection
) -> None:
    hand = Hand(connection)
    connection.execute("insert into rota.job_type (name) values ('t')")
    connection.execute(_OVERLOADS)
    with pytest.raises(psycopg.errors.RaiseException, match="hijacked by job_to_history"):
        connection.execute("select rota.job_to_history('{1}', 'cancelled')")

    cancelled, *dead = insert(connection, 5)
    hand.settle(*((job, FAIL) for job in hand.claim().jobs if job.id == cancelled))
    connection.execute(
        "update rota.job set status = 'dead', failed_at = rota.clock(), locked_by = null, "
        "locked_until = null where id = any (%s)",
        [dead],
    )
    requeued, retried, discarded, ignored = dead
    for action, id_ in (
        (Action.CANCEL, cancelled),
        (Action.REQUEUE, requeued),
        (Action.RETRY, retried),
        (Action.DISCARD, retried),
        (Action.RUN_AGAIN, cancelled),
        (Action.ARCHIVE, ignored),
    ):
        assert hand.run(act(action, id_, why="so")), action
    who = {"why": "so", "by": "eva"}
    of_queue: Any = {"queue": "default", "force": False, **who}
    hand.run(ops.ask("queue_pause_for", until=None, for_s=None, **of_queue))
    hand.run(ops.ask("queue_resume", **of_queue))
    hand.run(ops.ask("pause_all_for", until=None, for_s=None, **who))
    hand.run(ops.ask("resume_all", **who))
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('s', 't', '0 * * * *')"
    )
    for verb in ("pause", "resume", "trigger", "delete"):
        call = f"select rota.schedule_{verb}('s'::text, 'so'::text, 'eva'::text)"
        connection.execute(call.encode())
    jobs = hand.claim().jobs
    assert jobs
    hand.settle(*((job, SUCCEED) for job in jobs[1:]))
    expire(connection)
    assert hand.reap()
    connection.execute("select rota.partitions_ensure(9::int)")
    connection.execute("select rota.dead_archive(9::int, %s::bigint[])", [[discarded]])


def _is_refused_and_named(database: str, connection: Connection, *names: str) -> str:
    """Hold that migrate, its script, its check and doctor name it; the cure, as doctor says it."""
    finding = examine(Database(database), only=["privileges"])["privileges"]
    assert finding.level == Level.BAD
    assert all(name in finding.what for name in names), finding
    with pytest.raises(SchemaError, match=re.escape(finding.what_to_do)):
        migrate(database)
    with pytest.raises(psycopg.errors.RaiseException, match=re.escape(finding.what_to_do)):
        connection.execute(as_sql(after=1).encode())
    assert run(["migrate", "--check", "--url", database, "--schema", "rota"]) == 3
    return finding.what_to_do


def _is_at_peace(database: str, connection: Connection) -> None:
    assert examine(Database(database), only=["privileges"])["privileges"].level == Level.OK
    migrate(database)
    connection.execute(as_sql(after=1).encode())
    assert run(["migrate", "--check", "--url", database, "--schema", "rota"]) == 0


@rule("M13", "M45")
def test_a_schema_in_which_others_may_create_is_refused_and_named(
    database: str, connection: Connection, stranger: str
) -> None:
    day = connection.execute(
        "select min(inhrelid::regclass::text) from pg_inherits where inhparent = "
        "'rota.job_history'::regclass"
    ).fetchall()[0][0]
    for wrong, named, cure in (
        (None, stranger, f"REVOKE CREATE ON SCHEMA rota FROM {stranger}"),
        ("grant create on schema rota to public", "PUBLIC",
            "REVOKE CREATE ON SCHEMA rota FROM PUBLIC"),
        (f"revoke all on schema rota from {stranger}; alter schema rota owner to {stranger}",
            f"{stranger} owns the schema", "ALTER SCHEMA rota OWNER TO postgres"),
        (f"alter table {day} owner to {stranger}", stranger,
            f"ALTER TABLE {day} OWNER TO postgres"),
    ):  # fmt: skip
        if wrong is not None:
            connection.execute(wrong.encode())
        assert _is_refused_and_named(database, connection, named) == cure
        connection.execute(cure.encode())
    _is_at_peace(database, connection)


@rule("M45")
def test_the_first_migration_is_refused_in_a_schema_that_another_role_owns(
    empty_database: str, stranger: str
) -> None:
    owner = f"owner_{uuid4().hex[:12]}"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            sql.SQL(
                "create role {0} login; create schema theirs authorization {1}; "
                "grant all on schema theirs to {0}"
            ).format(sql.Identifier(owner), sql.Identifier(stranger))
        )
        mine = make_conninfo(empty_database, user=owner)
        with pytest.raises(SchemaError, match=f"ALTER SCHEMA theirs OWNER TO {owner}"):
            migrate(mine, "theirs")
        connection.execute(f"alter schema theirs owner to {owner}".encode())
        migrate(mine, "theirs")
        connection.execute(f"drop owned by {owner} cascade; drop role {owner}".encode())


@rule("M45")
def test_what_others_have_left_in_the_schema_is_refused_and_named(
    database: str, connection: Connection, stranger: str
) -> None:
    with psycopg.connect(make_conninfo(database, user=stranger), autocommit=True) as evil:
        evil.execute(
            "create function rota.job_finish(bigint[], integer[], text[], text, text, text[], "
            "jsonb[], text) returns setof bigint language sql as 'select 1'; "
            "create function rota.same(oid, regclass) returns bool language sql as 'select true'; "
            "create operator rota.= (leftarg = oid, rightarg = regclass, function = rota.same); "
            "create procedure rota.prepare() language sql as ''; "
            "create table rota.mine (); create view rota.looks as select 1 as one"
        )
    connection.execute(f"revoke create on schema rota from {stranger}".encode())
    cure = _is_refused_and_named(
        database,
        connection,
        f"operator rota.=(pg_catalog.oid,pg_catalog.regclass) belongs to {stranger}",
        "function rota.job_finish(bigint[],integer[],",
        "procedure rota.prepare() belongs",
        "table rota.mine belongs",
        "view rota.looks belongs",
    )
    connection.execute(cure.encode())
    _is_at_peace(database, connection)


@rule("M45", "M13")
def test_a_role_that_has_the_owners_rights_may_create_and_own_partitions(
    empty_database: str, stranger: str
) -> None:
    owner = f"owner_{uuid4().hex[:12]}"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            f"create role {owner} login; grant {owner} to {stranger}; "
            f"create schema rota authorization {owner}".encode()
        )
        mine = make_conninfo(empty_database, user=owner)
        migrate(mine)
        with psycopg.connect(
            make_conninfo(empty_database, user=stranger), autocommit=True
        ) as worker:
            worker.execute("select rota.partitions_ensure(20)")
        theirs = connection.execute(
            "select count(*) from pg_class where relowner = %s::regrole", [stranger]
        ).fetchone()
        assert theirs is not None and theirs[0] > 0
        migrate(mine)
        connection.execute(f"drop owned by {owner} cascade; drop role {owner}".encode())


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
