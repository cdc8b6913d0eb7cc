"""A worker process of the demo: `rota work`, started, killed, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rota.demo.jobs import FILES, LIFELINE
from rota.errors import RotaError

WAIT_S = 30.0
"""Longest wait: nothing here takes longer, even on a slow machine."""
CHECK_EVERY_S = 0.02
LOG_LINES = 15


class WorkerProcess:
    """A `rota work` in its own process, which is killed at the latest when the block ends."""

    def __init__(self, url: str, files: Path, name: str) -> None:
        self._log = files / f"{name}.log"
        self._reader, self._writer = os.pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rota",
                    "work",
                    "--app",
                    "rota.demo.jobs:app",
                    "--grace",
                    "10s",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._reader,),
                env={
                    **os.environ,
                    "ROTA_DATABASE_URL": url,
                    FILES: str(files),
                    LIFELINE: str(self._reader),
                },
            )
        self.pid = self._process.pid

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._reader)
        os.close(self._writer)

    def kill(self) -> None:
        """Send SIGKILL. Returns when the process has ended."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM, as a deploy does. Returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise self._failure_of(f"did not stop within {WAIT_S:g} s of SIGTERM") from None

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll until the condition holds.

        Raises:
            RotaError: the process ended first, or it took too long.
        """
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if self._process.poll() is not None:
                raise self._failure_of(
                    f"ended with status {self._process.returncode} before {what}"
                )
            if time.monotonic() > deadline:
                raise self._failure_of(f"ran for {WAIT_S:g} s, but never: {what}")
            time.sleep(CHECK_EVERY_S)  # it happens in another process, which sends no event

    def _failure_of(self, how: str) -> RotaError:
        last = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        return RotaError(f"a worker of the demo {how}; the end of its log:\n{last}")
