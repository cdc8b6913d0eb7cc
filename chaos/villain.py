"""Does harm every two seconds. The seed decides what, to whom, and how long a crashed server is
away."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import psycopg

from chaos.crew import Crew, WorkerProcess
from tests.support.server import PostgresServer

EVERY_S = 2.0
FROZEN_S = 6.0
AWAY_S = 1.5
"""Longest time until a crashed server is restarted."""
TERMINATE = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where backend_type = 'client "
    "backend' and pid <> pg_backend_pid()"
)


class Villain:
    """Does one harmful act each time that one is due."""

    def __init__(self, seed: int, crew: Crew, server: PostgresServer, url: str) -> None:
        self.acts: Counter[str] = Counter()
        self._chance = random.Random(f"villain {seed}")
        self._crew = crew
        self._server = server
        self._url = url
        self._due_at = time.monotonic() + EVERY_S
        self._frozen: list[tuple[float, float, WorkerProcess]] = []
        self._deck: list[str] = []
        self._ways: dict[str, Callable[[], bool]] = {
            "SIGKILL": self._kill,
            "SIGSTOP, 6 s": self._freeze,
            "all connections cut": self._cut,
            "server crash": self._crash,
            "deploy": self._deploy,
        }

    def turn(self) -> None:
        """Do the act that is due."""
        self._thaw(time.monotonic())
        if time.monotonic() >= self._due_at:
            self._due_at += EVERY_S
            if not self._deck:  # every way in turn, in an order of its own each time
                self._deck = self._chance.sample(list(self._ways), len(self._ways))
            name = self._deck.pop()
            if self._ways[name]():
                self.acts[name] += 1

    def leave(self) -> None:
        """Undo what would not end by itself."""
        self._thaw(float("inf"))

    def _kill(self) -> bool:
        worker = self._choose(frozen=True)
        if worker is not None:
            self._crew.kill(worker)
        return worker is not None

    def _freeze(self) -> bool:
        worker = self._choose(frozen=False)
        if worker is not None:
            self._frozen.append((time.monotonic() + FROZEN_S, self._crew.freeze(worker), worker))
        return worker is not None

    def _cut(self) -> bool:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(TERMINATE)
        return True

    def _crash(self) -> bool:
        self._server.stop("immediate")
        back_at = time.monotonic() + self._chance.uniform(0, AWAY_S)
        while time.monotonic() < back_at:
            self._thaw(time.monotonic())
            time.sleep(0.02)
        self._server.start()
        return True

    def _deploy(self) -> bool:
        worker = self._choose(frozen=False)
        if worker is not None:
            self._crew.deploy(worker)
        return worker is not None

    def _choose(self, *, frozen: bool) -> WorkerProcess | None:
        """Choose a running worker, frozen or not; None: none, as while all of them restart."""
        workers = [
            worker
            for worker in self._crew.at_work
            if worker.has_begun and (frozen or not worker.is_frozen)
        ]
        # Drawn in any case, so that what comes next does not depend on who is there.
        chosen = self._chance.random()
        return workers[int(chosen * len(workers))] if workers else None

    def _thaw(self, now: float) -> None:
        for frozen in [frozen for frozen in self._frozen if frozen[0] <= now]:
            self._frozen.remove(frozen)
            _, since, worker = frozen
            self._crew.thaw(worker, since)
