"""`rota work --processes` with the app of `worker_app`: a parent and its workers, from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support import forked
from tests.support.wait import eventually
from tests.worker.process import ROOT, notes


class SupervisorProcess:
    """A parent; `around` is a command that runs it, as `unshare` does."""

    def __init__(
        self,
        place: Path,
        url: str,
        processes: int,
        *options: str,
        app: str = "tests.worker.worker_app:app",
        around: tuple[str, ...] = (),
    ) -> None:
        self.notes_file = place / "notes"
        self.log_file = place / f"supervisor-{len(list(place.glob('supervisor-*.log')))}.log"
        command = ["-m", "rota", "work", f"--app={app}", f"--processes={processes}", *options]
        self.out_file = self.log_file.with_suffix(".out")
        self._seen: set[psutil.Process] = set()
        with self.log_file.open("wb") as log, self.out_file.open("wb") as out:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log}
            own = {"ROTA_DATABASE_URL": url, "WORKER_NOTES": str(self.notes_file)}
            self.process = forked.start(
                command, env=os.environ | own, around=around, cwd=ROOT, **streams
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """What it and its children have logged."""
        return self.log_file.read_text()

    def children(self) -> list[psutil.Process]:
        """The worker processes that are there now."""
        try:
            found = [child for child in psutil.Process(self.pid).children() if not gone(child)]
        except psutil.NoSuchProcess:
            return []
        self._seen.update(found)
        return found

    def until_working(self, count: int) -> None:
        """Wait until so many workers were about to claim, since the beginning."""
        eventually(
            lambda: self._living_log().count(" started, release ") >= count,
            120,
            what=f"{count} workers have started",
        )

    def until_noted(self, what: str) -> int:
        """Wait until a handler has said so; return the pid of its process."""
        return next(
            pid
            for pid, said in eventually(
                lambda: [n for n in notes(self.notes_file) if n[1] == what], what=what
            )
            if pid
        )

    def signal(self, number: signal.Signals) -> None:
        """Send the parent a signal."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 30) -> tuple[int, str]:
        """Wait for its end; return the exit status and what it printed."""
        return self.process.wait(timeout_s), self.out_file.read_text()

    def end(self) -> None:
        """Kill whatever is left."""
        left = self._seen | {
            *(
                psutil.Process(self.pid).children(recursive=True)
                if self.process.poll() is None
                else ()
            )
        }
        self.process.kill()
        for child in left:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait()

    def _living_log(self) -> str:
        assert self.process.poll() is None, self.log
        return self.log


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; when init takes note of that is its own affair."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def probe(port: int, path: str) -> tuple[int, str]:
    """What a health port answers; status 0 if no server listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode().rstrip("\n")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().rstrip("\n")
    except OSError as error:
        return 0, str(error)
