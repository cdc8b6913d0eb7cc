"""The worker processes: started as an operator starts them, restarted when killed, and
redeployed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[1]
FLEET = (1, 1, 1)
"""The workers: how many processes each has."""
GRACE_S = 2
SLOTS = 20
STOP_S = 60
"""How long a worker may take to stop: the grace period, and what the database costs."""
AGAIN_S = 0.5
"""A supervisor's delay before it restarts a worker that found no database."""
NO_DATABASE = 5
"""The exit status of a worker that found no database."""


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """One worker process and how it ended."""

    process: subprocess.Popen[bytes]
    release: str
    processes: int
    """How many it has: one works itself, of more it is the supervisor."""
    log: Path
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    stop_asked_at: float | None = None
    """When it was asked to stop."""
    is_frozen: bool = False
    said_so: bool = False
    """Whether its log says that it has started."""
    how: str = "by itself"
    """Why it ended: killed, asked to stop …; or by itself."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_at_work(self) -> bool:
        """Whether the villain may choose it: it runs and was not asked to stop."""
        return self.ended_at is None and self.stop_asked_at is None

    @property
    def has_begun(self) -> bool:
        """Whether it has got far enough to claim."""
        self.said_so = self.said_so or " started, release " in self.log.read_text(errors="replace")
        return self.said_so


class Workers:
    """Keeps a number of workers running.

    Use it from one thread only: the kernel kills the workers when the thread that started them
    ends.
    """

    def __init__(self, url: str, place: Path, fleet: Sequence[int] = FLEET) -> None:
        self.witness = place / "witness"
        self.witness.mkdir()
        self.heap = place / "heap"
        self.heap.mkdir()
        self.all: list[WorkerProcess] = []
        self.silences: list[tuple[int, float, float | None]] = []
        """Pid, with the times from and until which the process cannot have written anything."""
        self._url = url
        self._place = place
        self._releases = itertools.count(1)
        self._again: list[tuple[float, WorkerProcess]] = []
        self._count = 0
        for processes in fleet:
            self._start("r0", processes)

    @property
    def at_work(self) -> list[WorkerProcess]:
        """Return the processes that the villain may choose, frozen ones included."""
        return [worker for worker in self.all if worker.is_at_work]

    def kill(self, worker: WorkerProcess) -> None:
        """Kill it as a power cut would, and start another of its release."""
        worker.how = "killed"
        worker.process.kill()
        worker.process.wait()
        self.silences.append((worker.pid, time.time(), None))
        worker.ended_at = time.time()
        self._start(worker.release, worker.processes)

    def freeze(self, worker: WorkerProcess) -> float:
        """Freeze it; return when that was."""
        worker.process.send_signal(signal.SIGSTOP)
        worker.is_frozen = True
        return time.time()

    def thaw(self, worker: WorkerProcess, since: float) -> None:
        """Let it continue, if it is still alive."""
        if worker.ended_at is None:
            self.silences.append((worker.pid, since, time.time()))
            worker.process.send_signal(signal.SIGCONT)
            worker.is_frozen = False

    def deploy(self, worker: WorkerProcess) -> None:
        """Start a new release and ask this one to stop: for a while both run."""
        self._start(f"r{next(self._releases)}", worker.processes)
        self._stop(worker)

    def tend(self) -> None:
        """Find the processes that ended, and restart those that found no database."""
        for worker in self.all:
            if worker.ended_at is None and worker.process.poll() is not None:
                worker.ended_at = time.time()
                if worker.process.returncode == NO_DATABASE and not worker.has_begun:
                    worker.how = "found no database"
                    if worker.stop_asked_at is None:
                        self._again.append((time.monotonic() + AGAIN_S, worker))
                elif (
                    worker.process.returncode == -signal.SIGTERM
                    and worker.stop_asked_at is not None
                    and not worker.has_begun
                ):
                    worker.how = "told to stop before it had begun"
            elif (
                worker.ended_at is None
                and worker.stop_asked_at is not None
                and time.monotonic() - worker.stop_asked_at > STOP_S
            ):
                worker.how = "did not stop"
                self._end(worker)
        due = [worker for at, worker in self._again if at <= time.monotonic()]
        self._again = [(at, worker) for at, worker in self._again if at > time.monotonic()]
        for worker in due:
            self._start(worker.release, worker.processes)

    def stop(self) -> None:
        """Ask all to stop, and wait until they have."""
        for worker in self.at_work:
            self._stop(worker)
        self._again.clear()
        while any(worker.ended_at is None for worker in self.all):
            self.tend()
            time.sleep(0.05)

    def end(self) -> None:
        """Leave no process behind, whatever state they are in."""
        for worker in self.all:
            if worker.ended_at is None:
                self._end(worker)

    def save(self, connection: psycopg.Connection) -> None:
        """Write down what became of those that ended, and forget them."""
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into chaos.process (pid, release, began_at_s, ended_at_s, how, code) "
                "values (%s, %s, %s, %s, %s, %s)",
                [
                    (
                        worker.pid,
                        worker.release,
                        worker.began_at,
                        worker.ended_at,
                        worker.how,
                        worker.process.returncode,
                    )
                    for worker in self.all
                    if worker.ended_at is not None
                ],
            )
            cursor.executemany(
                "insert into chaos.silence (pid, since_s, until_s) values (%s, %s, %s)",
                self.silences,
            )
        self.all = [worker for worker in self.all if worker.ended_at is None]
        self.silences.clear()

    def _start(self, release: str, processes: int) -> None:
        log = self._place / f"worker-{self._count}.log"
        self._count += 1
        command = [
            sys.executable,
            "-m",
            "rota",
            "work",
            "--app",
            "chaos.app:app",
            "--concurrency",
            str(SLOTS),
            "--grace",
            f"{GRACE_S}s",
            *(["--processes", str(processes)] if processes > 1 else []),
        ]
        environment = {
            **os.environ,
            "ROTA_DATABASE_URL": self._url,
            "CHAOS_WITNESS": str(self.witness),
            "CHAOS_HEAP": str(self.heap),
            "CHAOS_RELEASE": release,
        }
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,  # Ctrl-C is for the run
            )
        self.all.append(WorkerProcess(process, release, processes, log))

    def _stop(self, worker: WorkerProcess) -> None:
        worker.how = "told to stop"
        worker.stop_asked_at = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)

    def _end(self, worker: WorkerProcess) -> None:
        worker.process.kill()
        worker.process.wait()
        worker.ended_at = time.time()
