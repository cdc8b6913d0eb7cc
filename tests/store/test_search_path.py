"""A role that may create functions in a schema of the search_path, as every role may in `public`
of a database that PostgreSQL 14 made, can make none of Rota's statements run them."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from rota.cli import run
from rota.observe.doctor.checks import examine
from rota.store.db import Database
from rota.store.statements import source, sql_files
from tests.store.work import Connection
from tests.support.rules import rule

STATEMENTS = [
    name
    for file in sql_files("statements")
    if not (name := file.name.removesuffix(".sql")).startswith("doctor_") and name != "top"
]
"""Those that run with the session's path: a user's triggers keep it. Those of doctor and of the
live view have one of their own."""
KINDS = (
    'text', 'name', 'varchar', '"char"', 'int2', 'int4', 'int8', 'float8', 'numeric', 'oid',
    'regclass', 'regnamespace', 'bool', 'timestamp', 'timestamptz', 'date', 'interval', 'json',
    'jsonb', 'text[]', 'int4[]', 'int8[]', 'jsonb[]', 'timestamptz[]', 'interval[]',
)  # fmt: skip
"""Types of which values may meet in a statement."""
_OPERATORS = """
do $do$ declare v_left text; v_right text; v_name text; begin
  foreach v_left in array (%(kinds)s)::text[] loop foreach v_right in array (%(kinds)s)::text[] loop
    execute format('create function strange.planted(%%s, %%s) returns bool language sql as '
      '$$ select true $$', v_left, v_right);
    foreach v_name in array (%(names)s)::text[] loop
      execute format('create operator strange.%%s (leftarg = %%s, rightarg = %%s, '
        'function = strange.planted)', v_name, v_left, v_right);
    end loop;
  end loop; end loop;
end $do$"""
_FUNCTIONS = """
do $do$ declare v_name text; v_left text; v_right text; begin
  foreach v_name in array (%(names)s)::text[] loop foreach v_left in array (%(kinds)s)::text[] loop
    execute format('create function strange.%%I(%%s) returns text language sql as '
      '$$ select null::text $$', v_name, v_left);
    foreach v_right in array (%(kinds)s)::text[] loop
      execute format('create function strange.%%I(%%s, %%s) returns text language sql as '
        '$$ select null::text $$', v_name, v_left, v_right);
    end loop;
  end loop; end loop;
end $do$"""
"""With every pair of types: of a pair that is PostgreSQL's own as well, the own one is found."""
_COPIES = """
do $do$ declare v_row record; begin
  for v_row in
    select p.proname, p.prokind, p.proretset, t.arguments, p.prorettype::regtype as result
    from pg_proc p
    cross join lateral (
      select coalesce(string_agg(case when p.provariadic <> 0 and n = p.pronargs
        then 'variadic ' else '' end || format_type(p.proargtypes[n - 1], null), ', ' order by n),
        '')
      from generate_series(1, p.pronargs) n
    ) t(arguments)
    where p.pronamespace = 'pg_catalog'::regnamespace
      and (p.oid in (select o.oprcode from pg_operator o) or p.proname = any (%(names)s))
  loop
    begin
      if v_row.prokind = 'a' then
        execute format('create aggregate strange.%%I(%%s) (sfunc = strange.hijack, stype = text)',
          v_row.proname, case v_row.arguments when '' then '*' else v_row.arguments end);
      else
        execute format('create function strange.%%I(%%s) returns %%s %%s language plpgsql as $$ '
          'begin raise ''hijacked by %%s''; end $$', v_row.proname, v_row.arguments,
          case when v_row.proretset then 'setof' end, v_row.result, v_row.proname);
      end if;
    exception when others then
      null;  -- of types that no function of a user's has
    end;
  end loop;
  for v_row in
    select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, p.proname
    from pg_operator o
    join pg_proc p on p.oid = o.oprcode
    where o.oprnamespace = 'pg_catalog'::regnamespace
      and o.oprkind = 'b'
  loop
    begin
      execute format('create operator strange.%%s (leftarg = %%s, rightarg = %%s, '
        'function = strange.%%I)', v_row.oprname, v_row.l, v_row.r, v_row.proname);
    exception when others then
      null;
    end;
  end loop;
end $do$"""
"""The same of PostgreSQL's own operators, and of the functions with these names."""


def _code(name: str) -> str:
    code = re.sub(r"--.*", "", source(name))
    return code.replace(":'schema'", "'rota'").replace(":schema.", "rota.")


def _called() -> list[str]:
    """What looks like a call of a function that no schema is named for."""
    code = "\n".join(_code(file.name.removesuffix(".sql")) for file in sql_files("statements"))
    return sorted(set(re.findall(r"(?<![\w.:])([a-z_]\w*)\(", code)))


@pytest.fixture
def hostile_path(connection: Connection) -> Connection:
    """A connection with a schema in its path that has an operator and a function for each pair of
    types."""
    connection.execute("create schema strange")
    names = sorted({*re.findall(r" ([-+*/<>=~!|?@]{1,3}) ", "\n".join(map(_code, STATEMENTS)))})
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(_OPERATORS, {"kinds": list(KINDS), "names": names})
        own = connection.execute(
            "select distinct proname::text from pg_proc where pronamespace = "
            "'pg_catalog'::regnamespace and prokind = 'f' and proname = any (%s)",
            [_called()],
        ).fetchall()
        cursor.execute(_FUNCTIONS, {"kinds": list(KINDS), "names": [row[0] for row in own]})
    connection.execute("set search_path = strange")
    return connection


@pytest.mark.nightly
@rule("M45")
def test_no_operator_or_function_in_the_path_fits_a_statement_better_than_the_servers_own(
    hostile_path: Connection,
) -> None:
    # One test: the path takes longer than all statements.
    assert {
        name: found for name in STATEMENTS if (found := _find_strange(hostile_path, name))
    } == {}


def _find_strange(hostile_path: Connection, name: str) -> list[str]:
    """Return what a statement uses of that schema."""
    kinds: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        kinds[found[1]] = found[2]
        return f"${list(kinds).index(found[1]) + 1}::{found[2]}"

    text = re.sub(r"(?<!:):([a-z_]+)::(\w+(?:\[\])?)", numbered, _code(name))
    # The server records what such a body uses, except for its own.
    made = (
        f"create or replace function public.held({', '.join(kinds.values())}) returns void "
        f"language sql begin atomic {text}; end"
    )
    with hostile_path.transaction(force_rollback=True):
        hostile_path.execute(made.encode())
        hostile_path.execute("set local search_path = pg_catalog")
        found = hostile_path.execute(
            "select pg_describe_object(refclassid, refobjid, 0) from pg_depend where classid = "
            "'pg_proc'::regclass and objid = (select oid from pg_proc where proname = 'held')"
        ).fetchall()
    return [what for (what,) in found if "strange." in what]


@rule("M45", "M3")
def test_doctor_and_the_live_view_find_nothing_but_the_servers_own(
    database: str, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    before = examine(Database(database))
    connection.execute(
        "create schema strange; "
        "create function strange.hijack(text, anyelement) returns text language plpgsql as "
        "$$ begin raise 'hijacked'; end $$"
    )
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(_COPIES, {"names": _called()})
    hostile = make_conninfo(database, options="-c search_path=strange,pg_catalog")
    with (
        psycopg.connect(hostile) as fooled,
        pytest.raises(psycopg.errors.RaiseException, match="hijacked"),
    ):
        fooled.execute("select 1 + 1")
    after = examine(Database(hostile))
    assert [(check.name, finding.level) for check, finding in after.findings] == [
        (check.name, finding.level) for check, finding in before.findings
    ]
    assert not [finding for _, finding in after.findings if "hijack" in finding.what]
    assert run(["top", "--once", "--url", hostile, "--schema", "rota"]) == 0
    assert "hijacked" not in capsys.readouterr().out
