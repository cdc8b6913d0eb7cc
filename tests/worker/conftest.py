"""Worker processes that do not outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.store.migrate import migrate
from tests.support.server import PostgresServer, unused_port
from tests.worker.process import WorkerProcess
from tests.worker.supervisor import SupervisorProcess
from tests.worker.table import Connection

StartWorker = Callable[..., WorkerProcess]
Connect = Callable[[], Connection]
StartSupervisor = Callable[..., SupervisorProcess]


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    """An App on the test's database."""
    app = rota.App(database)
    yield app
    app.close()


@pytest.fixture
def jobs() -> rota.Jobs:
    """One type, `quick`, whose jobs succeed at once."""
    made = rota.Jobs()

    @made.job("quick")
    async def quick() -> None: ...

    return made


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Start worker processes: `start_worker(url, lease="1s", concurrency=1)`; those that still run
    are killed after the test."""
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
def start_supervisor(tmp_path: Path) -> Iterator[StartSupervisor]:
    """Start `rota work --processes`: `start_supervisor(url, 2, "--concurrency=1")`; what still runs
    is killed after the test."""
    started: list[SupervisorProcess] = []

    def start(url: str, processes: int, *options: str, **others: Any) -> SupervisorProcess:
        supervisor = SupervisorProcess(tmp_path, url, processes, *options, **others)
        started.append(supervisor)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.end()


@pytest.fixture
def free_port() -> int:
    """A port on which no server listens."""
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
