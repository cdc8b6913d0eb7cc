"""An App and a port for tests of metrics, traces and reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rota
from tests.worker.conftest import StartSupervisor, free_port, start_supervisor

__all__ = ["StartSupervisor", "free_port", "start_supervisor"]


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    """An App on the test's database."""
    app = rota.App(database, release="test")
    yield app
    app.close()
