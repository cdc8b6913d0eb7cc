"""Worker processes that do not outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota.store.migrate import migrate
from tests.support.server import PostgresServer, unused_port
from tests.worker.fleet import FleetProcess
from tests.worker.process import WorkerProcess
from tests.worker.table import Connection

StartWorker = Callable[..., WorkerProcess]
Connect = Callable[[], Connection]
StartFleet = Callable[..., FleetProcess]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Start worker processes: `start_worker(url, lease="1s", slots=1)`; those that still run are killed after the test."""
    started: list[WorkerProcess] = []

    def start(url: str, **options: Any) -> WorkerProcess:
        worker = WorkerProcess(tmp_path, url, **options)
        started.append(worker)
        worker.until_started()
        return worker

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def start_fleet(tmp_path: Path) -> Iterator[StartFleet]:
    """Start `rota work --processes`: `start_fleet(url, 2, "--slots=1")`; what still runs is killed after the test."""
    started: list[FleetProcess] = []

    def start(url: str, processes: int, *options: str, **others: Any) -> FleetProcess:
        fleet = FleetProcess(tmp_path, url, processes, *options, **others)
        started.append(fleet)
        return fleet

    yield start
    for fleet in started:
        fleet.end()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    return unused_port()


@pytest.fixture
def connect(own_server: PostgresServer) -> Iterator[Connect]:
    """Connect to the test's own server, migrated: after each restart anew."""
    migrate(own_server.url())
    opened: list[Connection] = []

    def again() -> Connection:
        opened.append(psycopg.connect(own_server.url(), autocommit=True))
        return opened[-1]

    yield again
    for connection in opened:
        connection.close()
