"""The SQL files, as the driver wants them: the schema's name put in, `:name` parameters in the driver's spelling."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from rota.errors import ConfigurationError

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_SCHEMA = re.compile(r"\brota\b")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,49}")


@cache
def source(name: str) -> str:
    """The text of sql/NAME.sql as written."""
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def in_schema(sql: str, schema: str) -> str:
    """The same SQL for a schema of another name: in our SQL the word `rota` means the schema and nothing else."""
    return sql if schema == "rota" else _SCHEMA.sub(schema, sql)


def check_schema(schema: str) -> str:
    """Return the schema's name if it can be one. Raises ConfigurationError."""
    if not _NAME.fullmatch(schema):
        raise ConfigurationError(f"schema {schema!r}: a schema's name is up to 50 of a-z, 0-9 and _, not beginning with a digit")
    if schema.startswith("pg_"):
        raise ConfigurationError(f"schema {schema!r}: a schema's name does not begin with pg_, which is PostgreSQL's own")
    return schema


class Statements:
    """The statements for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = check_schema(schema)
        self._texts: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        text = self._texts.get(name)
        if text is None:
            lines = [line for line in source(name).splitlines() if not line.startswith("--")]
            text = _PARAMETER.sub(r"%(\1)s", in_schema("\n".join(lines), self.schema).replace("%", "%%")).encode()
            self._texts[name] = text
        return text

    def read_all(self) -> None:
        """Read every file now: a worker must not need one later, when its handlers have used up its descriptors, or a deploy has replaced the package."""
        for file in files(__package__).joinpath("sql").iterdir():
            if file.name.endswith(".sql"):
                self[file.name.removesuffix(".sql")]

    @property
    def channel(self) -> str:
        """The NOTIFY channel: named like the schema, so that two schemas in one database do not wake each other."""
        return self.schema

    @property
    def worker_channel(self) -> str:
        """The NOTIFY channel on which workers are called by name. No schema's name has a dot, so it is no other schema's bell."""
        return f"{self.schema}.workers"
