"""An App on the test's own database."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    """An App without job types, its release called "test"."""
    app = rota.App(database, release="test")
    yield app
    app.close()


@pytest.fixture
def second(database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Yield a second connection to `database`, also in autocommit."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
