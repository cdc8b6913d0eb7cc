"""Each statement's header, held against the server's own answer."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store import statements
from rota.store.migrate import migrations
from rota.store.statements import Statements, in_schema, source

NAMES = sorted(entry.name.removesuffix(".sql") for entry in files(statements.__package__).joinpath("sql").iterdir())
LABELS = ["Parameters", "Rows", "Locks", "Keeps"]
# As PostgreSQL spells them.
SPELLINGS = {
    "int": "integer", "int2": "smallint", "int4": "integer", "int8": "bigint", "float8": "double precision", "bool": "boolean",
    "timestamptz": "timestamp with time zone",
}  # fmt: skip
FACT = re.compile(r"(\w+) (\w+(?:\[\])?)")


def _header(name: str) -> dict[str, str]:
    """The parts of a header, each as one line."""
    lines = [line.removeprefix("--").strip() for line in source(name).splitlines() if line.startswith("--")]
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
    """The names and types that a header lists in its first sentence; what is in parentheses explains."""
    listed = re.sub(r"\([^()]*\)", "", text).split(". ")[0].removesuffix(".")
    if listed.strip() == "none":
        return {}
    facts = {}
    for part in listed.split(";"):
        found = FACT.fullmatch(part.strip())
        assert found, f"not a name and a type: {part!r}"
        facts[found[1]] = _spelt(found[2])
    return facts


def _body(name: str) -> str:
    return "\n".join(line for line in source(name).splitlines() if not line.startswith("--"))


def _casts(name: str) -> dict[str, set[str]]:
    """Each parameter of the text, with the types that it is cast to."""
    found: dict[str, set[str]] = {}
    for parameter, kind in re.findall(r"(?<!:):([a-z_]+)(?:::(\w+(?:\[\])?))?", _body(name)):
        found.setdefault(parameter, set()).add(_spelt(kind))
    return found


def _asked(connection: psycopg.Connection[TupleRow], name: str) -> tuple[list[str], list[str], list[str]]:
    """What the server says of a statement: its parameters' types in order of appearance, the names and the types of its rows."""
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
        connection.execute("select oid, format_type(oid, null) from pg_type where oid = any (%s)", [given + rows]).fetchall()
    )
    names = [(described.fname(at) or b"").decode() for at in range(described.nfields)]
    return [f"{name} {kinds[oid]}" for name, oid in zip(parameters, given, strict=True)], names, [kinds[oid] for oid in rows]


@pytest.mark.parametrize("name", NAMES)
def test_a_header_says_what_the_statement_does_takes_returns_locks_and_keeps(name: str) -> None:
    header = _header(name)
    assert list(header) == ["", *LABELS]
    assert all(header.values())
    assert header[""].endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_of_a_header_are_those_that_the_server_sees(connection: psycopg.Connection[TupleRow], name: str) -> None:
    said = _facts(_header(name)["Parameters"])
    given, _, _ = _asked(connection, name)
    assert {f"{parameter} {kind}" for parameter, kind in said.items()} == set(given)
    # Cast where they stand, so that they mean the same whatever the driver sends and however the search_path is set.
    assert _casts(name) == {parameter: {kind} for parameter, kind in said.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_of_a_header_are_those_that_the_server_returns(connection: psycopg.Connection[TupleRow], name: str) -> None:
    said = _facts(_header(name)["Rows"])
    _, names, kinds = _asked(connection, name)
    assert list(said.items()) == list(zip(names, kinds, strict=True))


@pytest.mark.parametrize("text", [*map(source, NAMES), *(migration.text for migration in migrations())])
def test_in_sql_the_word_rota_is_the_name_of_the_schema_and_nothing_else(text: str) -> None:
    code = re.sub(r"--.*", "", text)
    used_otherwise = re.findall(r".{0,20}\brota\b(?!\.).{0,20}", re.sub(r"set search_path = rota, pg_temp", "", code))
    # As a text it is the schema too: in names that are put together, and in the lock of this schema.
    assert [use for use in used_otherwise if "hashtext('rota')" not in use] == []


def test_the_word_is_replaced_wherever_it_means_the_schema() -> None:
    assert in_schema("select rota.clock(), 'rota.job', hashtext('rota')", "other") == "select other.clock(), 'other.job', hashtext('other')"
    assert in_schema("select rotate, rota_demo.job, x.rotas", "other") == "select rotate, rota_demo.job, x.rotas"


def test_a_percent_sign_in_a_statement_is_no_parameter_of_the_driver(connection: psycopg.Connection[TupleRow], monkeypatch: Any) -> None:
    monkeypatch.setattr(statements, "source", lambda name: "-- 100 %\nselect 7 % 4 as rest, :number::int as number")
    row = connection.execute(Statements("rota")["any"], {"number": 1}).fetchone()
    assert row == (3, 1)
