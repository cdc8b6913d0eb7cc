"""Worker processes that do not outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.process import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


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
