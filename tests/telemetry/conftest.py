"""An App and a port for tests of metrics, traces and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.support.server import unused_port
from tests.worker.supervisor import SupervisorProcess

StartSupervisor = Callable[..., SupervisorProcess]


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    """An App on the test's database."""
    app = rota.App(database, release="test")
    yield app
    app.close()


@pytest.fixture
def free_port() -> int:
    """A port on which no server listens."""
    return unused_port()


@pytest.fixture
def start_supervisor(tmp_path: Path) -> Iterator[StartSupervisor]:
    """Start `rota work --processes`; what still runs is killed after the test."""
    started: list[SupervisorProcess] = []

    def start(url: str, processes: int, *options: str, **others: Any) -> SupervisorProcess:
        supervisor = SupervisorProcess(tmp_path, url, processes, *options, **others)
        started.append(supervisor)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.end()
