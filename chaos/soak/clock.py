"""Moves the database's clock. The machine's clock, and so that of the ledger, stays."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg
from psycopg import sql

from chaos.soak.pace import STEPS

STEP = timedelta(days=1) / STEPS
OPTIONS = "-c lock_timeout=10s"
ALIVE = "update rota.worker set heartbeat_at = heartbeat_at + %s where stopped_at is null"
HELD = "update rota.job set locked_until = locked_until + %s where status = 'running'"
"""What is promised to those at work: they would have renewed it meanwhile."""


class Clock:
    """Moves the clock on by a step each time that one is due."""

    def __init__(self, url: str, day_s: float) -> None:
        self.ahead = timedelta()
        self.still = threading.Lock()
        """Who holds it has locks for long: a move would wait for them, and others for the move."""
        self._url = url
        self._every_s = day_s / STEPS
        self._due_at = time.monotonic() + self._every_s

    @property
    def days(self) -> float:
        """How many days it is ahead."""
        return self.ahead / timedelta(days=1)

    def turn(self) -> None:
        """Make the step that is due."""
        if time.monotonic() < self._due_at or not self.still.acquire(blocking=False):
            return
        try:
            self._due_at = time.monotonic() + self._every_s
            with psycopg.connect(
                self._url, autocommit=True, application_name="soak clock", options=OPTIONS
            ) as connection:
                connection.execute(ALIVE, [STEP])  # by itself: others lock such a row, then jobs
                with connection.transaction():
                    self._move(connection)
        finally:
            self.still.release()

    def _move(self, connection: psycopg.Connection) -> None:
        """Move it at one moment for everybody: no claim and no renewal is under way."""
        connection.execute("lock table rota.job in exclusive mode")
        ahead = self.ahead + STEP
        shown = f"pg_catalog.statement_timestamp() + {ahead.total_seconds():.0f} * interval '1 s'"
        connection.execute(
            sql.SQL(
                "create or replace function rota.clock() returns timestamptz "
                "language sql stable parallel safe as {}"
            ).format(sql.Literal(f"select {shown}"))
        )
        connection.execute(HELD, [STEP])
        connection.execute("insert into chaos.moved (ahead) values (%s)", [ahead])
        self.ahead = ahead
