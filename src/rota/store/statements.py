r"""The SQL of this release, as a driver takes it.

A statement is a file of `schema/statements/`, or a call of one of the schema's functions, built
from the header of that function. In a file `:schema` is the schema's name and `:name` a parameter,
as `psql` reads both: after `\\set schema rota` and `\\set limit 10` the file can be pasted. Its
lists of columns (`columns.py`) are written out first.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import md5
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from rota.errors import ConfigurationError
from rota.store.columns import CLAIMED, name_columns

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_QUOTED_SCHEMA = ":'schema'"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_RESERVED = """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit
    boolean both case cast char character check coalesce collate collation column concurrently
    constraint create cross current_catalog current_date current_role current_schema
    current_time current_timestamp current_user dec decimal default deferrable desc distinct do
    else end except exists extract false fetch float for foreign freeze from full grant greatest
    group grouping having ilike in initially inner inout int integer intersect interval into is
    isnull join json json_array json_arrayagg json_exists json_object json_objectagg json_query
    json_scalar json_serialize json_table json_value lateral leading least left like limit
    localtime localtimestamp merge_action national natural nchar none normalize not notnull null
    nullif numeric offset on only or order out outer overlaps overlay placing position precision
    primary real references returning right row select session_user setof similar smallint some
    substring symmetric system_user table tablesample then time timestamp to trailing treat trim
    true union unique user using values varchar variadic verbose when where window with
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot
    xmlserialize xmltable
"""
RESERVED = frozenset(_RESERVED.split())
"""Words of PostgreSQL 15 to 18 that name no schema without quotes."""
_FUNCTION = re.compile(
    r"^create (?:or replace )?function \{schema\}\.(?P<name>\w+)\s*\((?P<arguments>.*?)\)\s+"
    r"returns\s+(?P<returns>table\s*\((?P<columns>.*?)\)"
    r"|(?:setof )?(?:\{schema\}\.)?[\w\[\]]+(?: precision)?)\s",
    re.MULTILINE | re.DOTALL,
)
_ARGUMENT = re.compile(r"\s*(\w+)\s+(.+?)(?:\s+default\s.*)?\s*", re.DOTALL)
_CASTS = {"jsonb": "text::jsonb", "smallint": "int::smallint"}
"""How a parameter of such a type is sent, if the driver sends another type."""
_FOLDERS = ("settings", "functions", "api", "views", "triggers")
"""The folders of the schema's functions; the last two also hold views and triggers."""


def read_sql(file: Traversable) -> str:
    """Return the text of a file of schema/, with its lists of columns written out."""
    return name_columns(file.read_text(encoding="utf-8"))


def sql_files(folder: str) -> list[Traversable]:
    """Return the SQL files of a folder and of the folders in it, by their names."""
    found = list(files(__package__).joinpath("schema", folder).iterdir())
    for place in found:
        if place.is_dir():
            found += place.iterdir()
    return sorted(
        (file for file in found if file.name.endswith(".sql")), key=lambda file: file.name
    )


class Function(msgspec.Struct, frozen=True):
    """The header of one of the schema's functions."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    """(name, type) each."""
    columns: tuple[str, ...]
    """The columns of its rows; none: it returns a value."""
    returns: str

    @property
    def call(self) -> str:
        """A SELECT of all that it returns. Parameters have the arguments' names without `p_`."""
        arguments = ", ".join(
            f"{name} => :{name.removeprefix('p_')}::{_CASTS.get(kind, kind)}"
            for name, kind in self.arguments
        )
        called = f":schema.{self.name}({arguments})"
        if self.columns:
            return f"select {', '.join(f'f.{column}' for column in self.columns)} from {called} f"
        if self.returns.startswith("setof "):
            return f"select f as {self.name} from {called} f"
        return f"select {called}{'::text' if self.returns == 'void' else ''} as {self.name}"


def read_function(text: str) -> Function:
    found = _FUNCTION.search(text)
    if found is None:
        raise AssertionError(f"no header of a function in: {text[:200]}")
    arguments = [_ARGUMENT.fullmatch(argument) for argument in _split(found["arguments"])]
    columns = [_ARGUMENT.fullmatch(column) for column in _split(found["columns"] or "")]
    return Function(
        found["name"],
        tuple((argument[1], argument[2]) for argument in arguments if argument),
        CLAIMED
        if found["returns"] == "setof {schema}.claimed_job"
        else tuple(column[1] for column in columns if column),
        found["returns"],
    )


def _split(listed: str) -> list[str]:
    """Return the parts between commas that are in no quotes and no brackets."""
    parts = re.findall(
        r"(?:[^,'(\[{]|'[^']*'|\([^)]*\)|\[[^\]]*\]|\{[^}]*\})+", re.sub(r"--.*", "", listed)
    )
    return [part for part in parts if part.strip()]


@cache
def _functions() -> dict[str, str]:
    return {
        file.name.removesuffix(".sql"): text
        for folder in _FOLDERS
        for file in sql_files(folder)
        if _FUNCTION.search(text := read_sql(file))
    }


@cache
def source(name: str) -> str:
    """Return the text of a statement: its file, or the call from a function's header."""
    file = files(__package__).joinpath("schema", "statements", f"{name}.sql")
    if file.is_file():
        return read_sql(file)
    return read_function(_functions()[name]).call


def check_schema(schema: str) -> str:
    """Return the schema's name if it is valid. Raises ConfigurationError."""
    if not _NAME.fullmatch(schema):
        raise ConfigurationError(
            f"schema {schema!r}: a schema's name has up to 50 characters of a-z, 0-9 and _, "
            "and does not begin with a digit"
        )
    if schema.startswith("pg_"):
        raise ConfigurationError(
            f"schema {schema!r}: a schema's name does not begin with pg_, which is PostgreSQL's own"
        )
    if schema in RESERVED:
        raise ConfigurationError(
            f"schema {schema!r}: that is a reserved word of SQL; use another name, such as "
            f"rota_{schema}"
        )
    return schema


@cache
def _for_driver(text: str, schema: str) -> bytes:
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    named = "\n".join(lines).replace(_QUOTED_SCHEMA, f"'{schema}'")
    named = named.replace(":schema.", f"{schema}.").replace("%", "%%")
    return _PARAMETER.sub(r"%(\1)s", named).encode()


class Statements(dict[str, bytes]):
    """The statements for one schema, by name; each is read at its first use."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self.schema = check_schema(schema)

    def __missing__(self, name: str) -> bytes:
        text = self[name] = _for_driver(source(name), self.schema)
        return text

    def translate(self, text: str) -> bytes:
        return _for_driver(text, self.schema)

    def read_all(self) -> None:
        """Read every file now: later, descriptors may be used up, or the package replaced."""
        statements = [file.name.removesuffix(".sql") for file in sql_files("statements")]
        for name in [*_functions(), *statements]:
            self[name]

    @property
    def channel(self) -> str:
        """The NOTIFY channel of all workers: the schema's name, so two schemas do not mix."""
        return self.schema

    def worker_channel(self, worker: str) -> str:
        """Return the NOTIFY channel of one worker, as the SQL function `channel_of` does."""
        return f"{self.schema}.{md5(worker.encode(), usedforsecurity=False).hexdigest()[:8]}"
