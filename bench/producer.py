"""Fills the queue: once, or steadily from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import psycopg

from bench.server import value

BATCH = 1_000
AHEAD_S = 4.0
LOOK_S = 0.05
WITHIN_S = 300
BACKLOG = 20_000
"""At full speed the producer keeps this many jobs ahead of the worker, which so never runs dry."""
BACKLOG_MAX = 200_000
"""At a steady rate that the worker cannot keep up with, the producer pauses at this backlog."""
INSERT = """
insert into rota.job (queue, job_type, payload, priority)
select 'default', %s::text, jsonb_build_object('n', g), 0 from generate_series(%s::int, %s::int) g
"""


def fill(connection: psycopg.Connection, job_type: str, count: int) -> None:
    """Insert due jobs, 1,000 per statement, then vacuum as autovacuum would have by then."""
    for first in range(0, count, BATCH):
        connection.execute(INSERT, [job_type, first, min(first + BATCH, count) - 1])
    connection.execute("vacuum (analyze) rota.job")


def due_together(connection: psycopg.Connection, jobs: int) -> None:
    """Insert no-op jobs that become due at the same moment a little later, and wait for that
    moment."""
    due_at = time.perf_counter() + AHEAD_S
    connection.execute(
        "insert into rota.job (queue, priority, job_type, payload, run_at)"
        " select 'default', 0, 'noop', jsonb_build_object('n', n), now() + %s * interval '1 s' "
        "from generate_series(1, %s) n",
        [AHEAD_S, jobs],
    )
    time.sleep(max(0.0, due_at - time.perf_counter()))


def wait_until_done(
    connection: psycopg.Connection, look: Callable[[], None] = lambda: None
) -> float:
    """Wait until no job is left, and look at something meanwhile; return how long it took."""
    began = time.perf_counter()
    while value(connection, "select exists (select from rota.job)"):
        if time.perf_counter() - began > WITHIN_S:
            raise RuntimeError(f"the jobs were not done within {WITHIN_S} s")
        look()
        time.sleep(LOOK_S)
    return time.perf_counter() - began


class Producer:
    """Inserts jobs of type `counted`, 1,000 per statement: at a rate, or as fast as the worker
    takes them."""

    def __init__(self, url: str, done: Callable[[], int], rate: float | None = None) -> None:
        self._url = url
        self._done = done
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._error: psycopg.Error | None = None
        self.made = 0
        self.paused_s = 0.0
        """How long it waited for the worker.

        At full speed it must have waited, otherwise the producer was measured; at a rate it must
        not.
        """

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        if self._error is not None and error is None:
            raise self._error

    def check(self) -> None:
        """Raise the error that ended it, if any."""
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True, prepare_threshold=1) as connection:
                self._produce(connection)
        except psycopg.Error as error:
            self._error = error

    def _produce(self, connection: psycopg.Connection) -> None:
        most = BACKLOG if self._rate is None else BACKLOG_MAX
        due_at = time.monotonic()
        while not self._stop.is_set():
            if self.made - self._done() > most:
                before = time.monotonic()
                self._stop.wait(0.002)
                due_at = time.monotonic()
                self.paused_s += due_at - before
                continue
            if self._rate is not None:
                due_at += BATCH / self._rate
                self._stop.wait(max(0.0, due_at - time.monotonic()))
            connection.execute(INSERT, ["counted", self.made, self.made + BATCH - 1])
            self.made += BATCH
