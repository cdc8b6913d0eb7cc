"""A worker process, seen from outside: start it, wait for it, stop it, each with a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

ROOT = Path(__file__).resolve().parents[1]
SLOTS = 100
"""Jobs at once: the best of 10, 100 and 500."""
START_S = 30
STOP_S = 60


@dataclass(frozen=True, slots=True)
class Summary:
    """The last line of a worker process."""

    took_s: float
    cpu_s: float
    succeeded: int
    failed: int
    dead: int


class WorkerProcess:
    """One worker process. Leaving the `with` kills it if it is still running.

    `host` is the command that runs another one on the host of the worker.
    """

    def __init__(
        self,
        url: str,
        mode: str,
        *,
        slots: int = SLOTS,
        notify: bool = True,
        progress: Path | None = None,
        host: Sequence[str] = (),
    ) -> None:
        command = [*host, sys.executable, "-m", "bench.worker", mode, "--slots", str(slots)]
        command += [] if notify else ["--no-notify"]
        command += ["--progress", str(progress)] if progress else []
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "ROTA_DATABASE_URL": url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._line(START_S)
        except BaseException:
            self._process.kill()
            raise

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def cpu_s(self) -> float:
        """CPU seconds that it has used so far."""
        return float(sum(psutil.Process(self._process.pid).cpu_times()[:2]))

    def own_bytes(self) -> int:
        """Memory that no other process shares."""
        return int(psutil.Process(self._process.pid).memory_full_info().uss)

    def stop(self) -> Summary:
        """Ask it to stop and wait until it has."""
        self._process.send_signal(signal.SIGTERM)
        return self.finish(STOP_S)

    def finish(self, within_s: float) -> Summary:
        """Wait until it ends by itself."""
        said = json.loads(self._line(within_s))
        self._process.wait(STOP_S)
        return Summary(**said)

    def _line(self, within_s: float) -> str:
        assert self._process.stdout is not None
        alarm = threading.Timer(within_s, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            code = self._process.wait(STOP_S)
            why = (
                f"said nothing within {within_s:g} s"
                if code == -signal.SIGKILL
                else f"ended with {code}, which it says more about above"
            )
            raise RuntimeError(f"the worker process {why}")
        return line


@contextmanager
def start_workers(url: str, count: int, *, notify: bool) -> Iterator[list[WorkerProcess]]:
    """Start worker processes for a block, and stop them after it."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(WorkerProcess(url, "run", notify=notify)) for _ in range(count)
        ]
        yield workers
        for worker in workers:
            worker.stop()
