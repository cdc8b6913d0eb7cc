"""The kills and the deploys. They hit one of the two workers; the other one runs from the beginning
to the end, so that a slope of its memory would show."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import psutil

from chaos.workers import WorkerProcess, Workers

DECK = ("SIGKILL", "deploy", "SIGKILL to a process", "deploy")


class Harm:
    """Does one harmful act each time that one is due."""

    def __init__(self, seed: int, workers: Workers, every_s: float) -> None:
        self.acts: Counter[str] = Counter()
        self._chance = random.Random(f"harm {seed}")
        self._workers = workers
        self._every_s = every_s
        self._due_at = time.monotonic() + every_s
        self._deck: list[str] = []

    def turn(self) -> None:
        """Do the act that is due, to the worker of many processes."""
        if time.monotonic() < self._due_at:
            return
        worker = next(
            (
                worker
                for worker in self._workers.at_work
                if worker.processes > 1 and worker.has_begun
            ),
            None,
        )
        if worker is None:
            return  # one that was just started
        self._due_at = time.monotonic() + self._every_s
        self._deck = self._deck or list(reversed(DECK))
        act = self._deck.pop()
        match act:
            case "SIGKILL":
                self._workers.kill(worker)
            case "deploy":
                self._workers.deploy(worker)
            case _:
                self._kill_process(worker)
        self.acts[act] += 1

    def _kill_process(self, worker: WorkerProcess) -> None:
        """Kill one of its processes: its supervisor starts another one."""
        children = psutil.Process(worker.pid).children()
        if children:
            child = self._chance.choice(children)
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
                self._workers.silences.append((child.pid, time.time(), None))
