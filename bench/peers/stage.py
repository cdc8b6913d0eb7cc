"""Where a system plays a turn: a fresh database on the one server, and a ledger outside of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

from bench.peers.harness import LEASE
from bench.peers.install import Installed
from bench.peers.ledger import LedgerFile
from bench.peers.played import Failed, Played
from bench.peers.store import Database, Redis
from bench.peers.system import Setup, System
from bench.server import DurableServer

APPLICATION = "create table application (n bigint)"
EVERY_S = 0.005
"""Between two looks at a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and times; with these a run on two quiet cores ends before its limit."""

    rounds: int = 1
    jobs: int = 10_000
    """Of a drain; ten times as many for a system that finishes FAST of them a second."""
    drain_s: float = 3.0
    """The longest time that a drain is measured."""
    enqueue_s: float = 1.0
    pick_up_s: float = 4.0
    """At a hundred jobs a second."""
    crash_jobs: int = 1_000
    recover_s: float = 25.0
    """How long a system is given to run again what a crash has interrupted."""
    steady_rate: int = 2_000
    steady_s: float = 30.0
    idle_s: float = 10.0
    backlog_jobs: int = 1_000_000

    def shorten(self, seconds: float) -> Scale:
        """Return it with no measurement longer than this."""
        return replace(
            self,
            drain_s=min(self.drain_s, seconds),
            enqueue_s=min(self.enqueue_s, seconds),
            pick_up_s=min(self.pick_up_s, seconds),
            steady_s=min(self.steady_s, seconds),
            idle_s=min(self.idle_s, seconds),
        )


@dataclass
class Stage:
    """One server, and what is installed."""

    server: DurableServer
    place: Path
    scale: Scale
    installed: dict[str, Installed]
    speeds: dict[tuple[str, str], float] = field(default_factory=dict)
    """Jobs a second of the first drain of each system and setup."""
    _prepared: dict[tuple[object, ...], str] = field(default_factory=dict)
    """The database in which a system has made its tables, which is copied for each turn."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Some scenarios play several turns at once."""

    @contextmanager
    def turn(
        self, system: System, setup: Setup, more: dict[str, str] | None = None
    ) -> Iterator[Played]:
        """Yield a system with its tables in a database of its own."""
        place, more = Path(mkdtemp(prefix="turn-", dir=self.place)), more or {}
        on = partial(
            Played,
            system=system,
            setup=setup,
            installed=self.installed[system.module],
            place=place,
            ledger=LedgerFile(place / "ledger"),
            more=more,
        )
        with ExitStack() as stack:
            if system.kept == "redis":
                yield on(store=stack.enter_context(Redis(place / "redis")))
            else:
                with self._lock:
                    like = self._prepare(on, (system.module, setup.name, LEASE in more))
                    url = stack.enter_context(self.server.database(migrated=False, like=like))
                yield on(store=Database(self.server, urlsplit(url).path[1:]))

    def _prepare(self, on: Callable[..., Played], key: tuple[object, ...]) -> str:
        """Return the name of a database in which the system has made its tables."""
        if key not in self._prepared:
            name = f"prepared_{len(self._prepared)}"
            with self.server.admin() as admin:
                admin.execute(f"drop database if exists {name} with (force)".encode())
                admin.execute(f"create database {name}".encode())
            with self.server.admin(name) as admin:
                admin.execute(APPLICATION)
            on(store=Database(self.server, name)).run("prepare")
            self._prepared[key] = name
        return self._prepared[key]

    @contextmanager
    def apart(self, name: str) -> Iterator[Stage]:
        """Yield a stage with a server of its own, which may crash."""
        server = DurableServer(self.place, name)
        server.start()
        try:
            yield replace(self, server=server, _prepared={})
        finally:
            server.stop()


@contextmanager
def count_left(played: Played) -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many jobs are not finished."""
    with played.store.count(played.system.left) as left:
        yield left


def wait_until(done: Callable[[], bool], within_s: float, every_s: float = EVERY_S) -> bool:
    """Return whether it was done in time."""
    until = time.monotonic() + within_s
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(every_s)
    return True


def first_begun(played: Played, within_s: float, why: str) -> float:
    """Wait until a worker has begun a job; return when. Raises Failed."""
    ledger = played.ledger
    if not wait_until(lambda: bool(ledger.entries()), within_s):
        raise Failed(why)
    return ledger.entries()[0].at
