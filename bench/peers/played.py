"""A system that plays: its programs in its own environment, on one database, with one ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.peers.harness import URL, WORKER
from bench.peers.install import Installed
from bench.peers.ledger import PATH, LedgerFile
from bench.peers.store import Store
from bench.peers.system import Setup, System

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RUN_S = 180
"""For one program that is not a worker."""
SAID = 2_000
"""Characters of a failed program's words that are shown."""


class Failed(Exception):
    """A program of a system failed, or did not do what it was asked; the message says why."""


@dataclass(frozen=True)
class Worker:
    """A worker process with its children."""

    process: subprocess.Popen[bytes]
    log: Path

    def tree(self) -> list[psutil.Process]:
        """Return it and its children."""
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """CPU seconds that it has used, children that ended included."""
        total = 0.0
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
                if process.pid == self.process.pid:
                    total += times.children_user + times.children_system
        return total

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, and to children that have left it."""
        children = self.tree()[1:]
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        for process in children:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) != self.process.pid:
                    process.send_signal(number)

    def kill(self) -> None:
        """Kill it with its children, and wait."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def said(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-SAID:]


@dataclass(frozen=True)
class Played:
    """A system in one setup, on one database."""

    system: System
    setup: Setup
    installed: Installed
    store: Store
    place: Path
    """A directory for this turn alone."""
    ledger: LedgerFile
    more: dict[str, str] = field(default_factory=dict)
    """More environment variables."""

    def run(self, verb: str, *given: object, within_s: float = RUN_S) -> Any:
        """Run a verb of its harness; return its result."""
        with (self.place / "said").open("wb") as said:
            try:
                done = subprocess.run(
                    [*self._command(), verb, *map(str, given)],
                    cwd=ROOT,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    timeout=within_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Failed(f"{verb} was not over after {within_s:g} s") from None
        if done.returncode != 0:
            text = (self.place / "said").read_text(errors="replace")[-SAID:]
            raise Failed(f"{verb} ended with {done.returncode}: {text}")
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise Failed(f"{verb} gave no result: {error}") from None

    @contextmanager
    def worker(self, slots: int | None = None, name: str = "a") -> Iterator[Worker]:
        """Run a worker for a block; it is killed after it. One that is started again has the same
        name."""
        given = [] if slots is None else [str(slots)]
        log = self.place / f"worker-{len([*self.place.glob('worker-*')])}"
        environment = {**self._environment(), WORKER: name}
        with log.open("wb") as said:
            process = subprocess.Popen(
                [*self._command(), "work", *given],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        worker = Worker(process, log)
        try:
            yield worker
        finally:
            worker.kill()

    def _command(self) -> list[str]:
        if self.system.runtime == "node":
            program = HERE / "systems" / f"{self.system.module}.cjs"
            return [*self.installed.command, str(program), self.setup.name]
        module = f"bench.peers.systems.{self.system.module}"
        return [*self.installed.command, "-m", module, self.setup.name]

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            **self.installed.environment,
            **self.system.settings,
            URL: self.store.url,
            PATH: str(self.ledger.path),
            **self.more,
        }
