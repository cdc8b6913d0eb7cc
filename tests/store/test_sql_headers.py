"""Each statement's header, held against the server's own answer."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from rota.store import statements
from rota.store.migrate import definitions, migrate, migrations, name_schema
from rota.store.statements import Statements, read_function, source, sql_files
from tests.support.server import PostgresServer

NAMES = [file.name.removesuffix(".sql") for file in sql_files("statements")]
DEFINITIONS = definitions()
FUNCTIONS = {
    made.name: read_function(made.text)
    for made in DEFINITIONS
    if "create or replace function" in made.text
}
CALLED = [
    name
    for name, header in FUNCTIONS.items()
    if name not in NAMES
    and header.returns != "trigger"
    and not any(kind.startswith("{schema}.") for _, kind in header.arguments)
]
"""Those that a client can call by their header: a row of the schema's tables is no parameter."""
LABELS = ["Parameters", "Rows", "Locks", "Keeps"]
# As PostgreSQL spells them.
SPELLINGS = {
    "int": "integer", "int2": "smallint", "int4": "integer", "int8": "bigint",
    "float8": "double precision", "bool": "boolean",
    "timestamptz": "timestamp with time zone",
}  # fmt: skip
FACT = re.compile(r"(\w+) (\w+(?:\[\])?)")


def _header(name: str) -> dict[str, str]:
    lines = [
        line.removeprefix("--").strip()
        for line in source(name).splitlines()
        if line.startswith("--")
    ]
    parts: dict[str, str] = {"": ""}
    label = ""
    for line in lines:
        found = re.match(rf"({'|'.join(LABELS)}): (.*)", line)
        label, said = (found[1], found[2]) if found else (label, line)
        parts[label] = f"{parts.get(label, '')} {said}".strip()
    return parts


def _spelt(kind: str) -> str:
    base = kind.removesuffix("[]")
    return SPELLINGS.get(base, base) + kind[len(base) :]


def _facts(text: str) -> dict[str, str]:
    """The names and types that a header lists in its first sentence; what is in parentheses
    explains.
    """
    listed = re.sub(r"\([^()]*\)", "", text).split(". ")[0].removesuffix(".")
    if listed.strip() == "none":
        return {}
    facts = {}
    for part in listed.split(";"):
        found = FACT.fullmatch(part.strip())
        assert found, f"not a name and a type: {part!r}"
        facts[found[1]] = _spelt(found[2])
    return facts


def _code(name: str) -> str:
    return "\n".join(line for line in source(name).splitlines() if not line.startswith("--"))


def _body(name: str) -> str:
    return _code(name).replace(":schema.", "rota.").replace(":'schema'", "'rota'")


def _casts(name: str) -> dict[str, set[str]]:
    """Each parameter of the text, with the types that it is cast to."""
    found: dict[str, set[str]] = {}
    for parameter, kind in re.findall(r"(?<!:):([a-z_]+)(?:::(\w+(?:\[\])?))?", _body(name)):
        found.setdefault(parameter, set()).add(_spelt(kind))
    return found


def _asked(
    connection: psycopg.Connection[TupleRow], name: str
) -> tuple[list[str], list[str], list[str]]:
    """What the server says of a statement: its parameters' types in order of appearance, the names
    and the types of its rows.
    """
    parameters: list[str] = []

    def numbered(found: re.Match[bytes]) -> bytes:
        parameters.append(found[1].decode())
        return b"$%d" % len(parameters)

    text = re.sub(rb"%\((\w+)\)s", numbered, Statements("rota")[name]).replace(b"%%", b"%")
    connection.pgconn.prepare(f"held_{name}".encode(), text)
    described = connection.pgconn.describe_prepared(f"held_{name}".encode())
    assert not described.error_message, described.error_message.decode()
    given = [described.param_type(at) for at in range(described.nparams)]
    rows = [described.ftype(at) for at in range(described.nfields)]
    kinds: dict[int, str] = dict(
        connection.execute(
            "select oid, format_type(oid, null) from pg_type where oid = any (%s)", [given + rows]
        ).fetchall()
    )
    names = [(described.fname(at) or b"").decode() for at in range(described.nfields)]
    return (
        [f"{name} {kinds[oid]}" for name, oid in zip(parameters, given, strict=True)],
        names,
        [kinds[oid] for oid in rows],
    )


def test_a_header_says_what_the_statement_does_takes_returns_locks_and_keeps() -> None:
    for name in NAMES:
        header = _header(name)
        assert list(header) == ["", *LABELS], name
        assert all(header.values()), name
        assert header[""].endswith("."), name


def test_the_parameters_of_a_header_are_those_that_the_server_sees(
    shared: psycopg.Connection[TupleRow],
) -> None:
    for name in NAMES:
        said = _facts(_header(name)["Parameters"])
        given, _, _ = _asked(shared, name)
        assert {f"{parameter} {kind}" for parameter, kind in said.items()} == set(given), name
        # Cast where they stand, so that they mean the same whatever the driver sends and however
        # the search_path is set.
        assert _casts(name) == {parameter: {kind} for parameter, kind in said.items()}, name


def test_the_rows_of_a_header_are_those_that_the_server_returns(
    connection: psycopg.Connection[TupleRow],
) -> None:
    for name in NAMES:
        said = _header(name)["Rows"]
        _, names, kinds = _asked(connection, name)
        listed: list[str] = []
        if found := re.match(r"(\w+(?:, \w+)+)(?:; |\. |\.$)", said):
            said, listed = said[found.end() :] or "none", found[1].split(", ")
        assert names[: len(listed)] == listed, name
        rest = list(zip(names, kinds, strict=True))[len(listed) :]
        assert list(_facts(said).items()) == rest, name


def test_the_call_that_is_built_from_the_header_of_a_function_is_what_the_server_has(
    shared: psycopg.Connection[TupleRow],
) -> None:
    for name in CALLED:
        header = FUNCTIONS[name]
        given, names, _ = _asked(shared, name)
        [(arguments, takes_all)] = shared.execute(
            "select proargnames[1:pronargs], pronargs = %s from pg_proc where pronamespace = "
            "'rota'::regnamespace and proname = %s",
            [len(given), name],
        ).fetchall()
        assert takes_all, name
        assert [argument for argument, _ in header.arguments] == (arguments or []), name
        assert names == (list(header.columns) or [name]), name


def test_a_definition_begins_with_what_it_is_for() -> None:
    assert [made.name for made in DEFINITIONS if not made.text.startswith("-- ")] == []


def test_no_file_names_the_schema() -> None:
    for text in [*(made.text for made in DEFINITIONS), *(made.text for made in migrations())]:
        code = re.sub(r"--.*|'[^']*'", "", text)
        assert not re.search(r"\brota\.", code), text


def test_every_file_can_be_pasted_into_psql(database: str, server: PostgresServer) -> None:
    pasted = [
        "\\set ON_ERROR_STOP on",
        "\\set schema rota",
        "begin;",
        "set local search_path = rota, pg_temp;",
    ]
    pasted += [name_schema(made.text, "rota") for made in DEFINITIONS]
    pasted.append("set local search_path = public;")
    for name in NAMES:
        pasted += [f"\\set {parameter} null" for parameter in _casts(name)]
        pasted.append(f"explain {_code(name)};")
    done = subprocess.run(
        [server.program("psql"), "-XqAt", database],
        input="\n".join([*pasted, "rollback;", "\\echo came to its end"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("came to its end\n"), done.stderr


def test_no_function_has_the_name_of_one_of_the_servers(
    shared: psycopg.Connection[TupleRow],
) -> None:
    # Our files name no schema, and the server's own functions are found before ours.
    taken = shared.execute(
        "select proname from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = "
        "any (%s)",
        [list(FUNCTIONS)],
    ).fetchall()
    assert taken == []


def test_the_schema_is_put_in_where_a_statement_names_it(monkeypatch: Any) -> None:
    text = "select :schema.clock(), (:'schema' || '.job')::regclass, :schema_name::text, x.rota"
    monkeypatch.setattr(statements, "source", lambda name: text)
    made = "select other.clock(), ('other' || '.job')::regclass, %(schema_name)s::text, x.rota"
    assert Statements("other")["any"] == made.encode()


def test_a_percent_sign_in_a_statement_is_no_parameter_of_the_driver(
    shared: psycopg.Connection[TupleRow], monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        statements, "source", lambda name: "-- 100 %\nselect 7 % 4 as rest, :number::int as number"
    )
    row = shared.execute(Statements("rota")["any"], {"number": 1}).fetchone()
    assert row == (3, 1)


def test_every_statement_can_be_prepared_in_a_schema_of_another_name(empty_database: str) -> None:
    schema = "job"  # as one of its tables
    migrate(empty_database, schema)
    with psycopg.connect(empty_database) as connection:
        statements = Statements(schema)
        for name in [*NAMES, *CALLED]:
            assert b"rota." not in statements[name]
            # With NULLs, planned and not run: the server resolves every name and type.
            parameters = dict.fromkeys(_parameters(statements[name]))
            connection.execute(b"explain " + statements[name], parameters)


def _parameters(statement: bytes) -> list[str]:
    return [part.split(b")s")[0].decode() for part in statement.split(b"%(")[1:]]
