"""A schema of another name does all that `rota` does."""

from __future__ import annotations

import psycopg
import pytest

from rota.store.migrate import migrate
from rota.store.statements import Statements
from tests.store.test_sql_headers import CALLED, NAMES


@pytest.fixture
def schema(empty_database: str) -> str:
    """A schema that is called as one of its tables."""
    migrate(empty_database, "job")
    return "job"


def test_every_statement_can_be_prepared_in_it(empty_database: str, schema: str) -> None:
    with psycopg.connect(empty_database) as connection:
        statements = Statements(schema)
        for name in [*NAMES, *CALLED]:
            assert b"rota." not in statements[name]
            # With NULLs, planned and not run: the server resolves every name and type.
            parameters = dict.fromkeys(_parameters(statements[name]))
            connection.execute(b"explain " + statements[name], parameters)


def _parameters(statement: bytes) -> list[str]:
    return [part.split(b")s")[0].decode() for part in statement.split(b"%(")[1:]]
