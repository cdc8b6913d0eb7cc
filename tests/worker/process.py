"""A worker in a process of its own, and what its handlers say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import TupleRow

from tests.support import forked
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """`app.run` of tests.worker.worker_app, or another module; `around` is a command that runs it.
    Several of one test share a directory, and so the notes of their handlers."""

    def __init__(self, place: Path, url: str, *, lease: str = "2m", **options: Any) -> None:
        self.notes_file = place / "notes"
        self.log_file = place / f"worker-{len(list(place.glob('worker-*')))}.log"
        environment = {
            **os.environ,
            "ROTA_DATABASE_URL": url,
            "WORKER_LEASE": lease,
            "WORKER_NOTES": str(self.notes_file),
        }
        around = options.pop("around", ())
        with self.log_file.open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            command = ["-m", options.pop("module", "tests.worker.worker_app"), json.dumps(options)]
            self.process = forked.start(
                command, env=environment, around=around, cwd=ROOT, **streams
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """What it has logged."""
        return self.log_file.read_text()

    def notes(self) -> list[str]:
        """What its handlers have said."""
        return [what for pid, what in notes(self.notes_file) if pid == self.pid]

    def until_started(self) -> None:
        """Wait until it is about to claim."""
        eventually(self._has_started, 120, what="the worker starts")

    def until_noted(self, what: str, timeout_s: float = 30) -> None:
        """Wait until one of its handlers has said so."""
        eventually(lambda: what in self.notes(), timeout_s, what=f"{what!r} is noted")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop it where it stands, until SIGCONT; returns when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        eventually(
            lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED,
            what="it has stopped",
        )

    def wait(self, timeout_s: float = 30) -> int:
        """Wait for its end; return the exit status."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def name(self, connection: psycopg.Connection[TupleRow]) -> str:
        """What it is called in the database."""
        row = connection.execute(
            "select name from rota.worker where pid = %s", [self.pid]
        ).fetchone()
        assert row is not None
        return str(row[0])

    def _has_started(self) -> bool:
        # Check this first: its first job may end the process before the log is read.
        lives = self.process.poll() is None
        has_started = " started, release " in self.log
        assert lives or has_started, self.log
        return has_started


def notes(path: Path) -> list[tuple[int, str]]:
    """What the handlers of all processes have said, in order: (pid, what)."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [(int(pid), what) for pid, _, what in (line.partition(" ") for line in lines)]


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and waits for its parent to notice does not."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
