"""An App on a database of its own, and a look at that database's rows."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.api.rows import Rows


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    """An App on `database`, of no known release."""
    app = rota.App(database, release="unknown")
    yield app
    app.close()


@pytest.fixture
def rows(connection: psycopg.Connection[TupleRow]) -> Rows:
    """The rows of `database`."""
    return Rows(connection)
