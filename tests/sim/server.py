"""The real server of a simulated world. One statement runs at a time, at a moment of virtual time;
one that waits for a lock waits, and others go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

LOOK_S = 0.003
"""Real seconds after which a statement that runs is asked whether it waits for a lock."""
CLOCK = """create or replace function rota.clock() returns timestamptz language sql stable
  parallel safe return coalesce(
    nullif(pg_catalog.current_setting('sim.now', true), ''), '2026-01-14 09:00+00'
  )::timestamptz"""
SETTINGS = (
    "-c timezone=UTC -c jit=off -c deadlock_timeout=20ms -c lock_timeout=0 -c statement_timeout=0 "
    "-c synchronous_commit=off -c max_parallel_workers_per_gather=0"
)
KEPT = "'definition', 'migration', 'schema_version'"
FILLED = ("installation", "alert_rule")
"""Tables that have rows in a new database."""


class Session:
    """A session of the server, lent to one simulated connection at a time."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=0, options=SETTINGS
        )
        self.pid = self.connection.info.backend_pid
        self.pool = ThreadPoolExecutor(1)
        self.now = self.started = ""

    def run(self, now: str, call: Callable[[psycopg.Connection[Any]], Any]) -> Any:
        """In its thread: set the clock, and run a statement."""
        if now != self.now:
            clocks = f"set sim.now = '{now}'; set sim.started = '{self.started}'"
            self.connection.execute(clocks.encode(), prepare=False)
            self.now = now
        return call(self.connection)

    def reset(self) -> None:
        with suppress(psycopg.Error):
            self.connection.rollback()
            self.connection.execute("reset all; select pg_advisory_unlock_all()")
        self.now = ""

    def close(self) -> None:
        self.pool.shutdown()
        self.connection.close()


class Server:
    """The server, with one database for one world after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._watch = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._watch.execute(CLOCK)
        self._move_times()
        self._ears = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._idle: list[Session] = []
        self._waiting: dict[Session, tuple[Future[Any], asyncio.Future[Any]]] = {}
        self._tables = self._watch.execute(
            "select string_agg(format('%I.%I', 'rota', relname), ', ') from pg_class "
            "where relnamespace = 'rota'::regnamespace and relkind in ('r', 'p') "
            f"and not relispartition and relname not in ({KEPT})".encode()
        ).fetchall()[0][0]
        self._watch.execute("create schema if not exists sim")
        for table in FILLED:
            self._watch.execute(
                f"create table if not exists sim.{table} as table rota.{table}".encode()
            )
        self.statements = 0

    def _move_times(self) -> None:
        """Let what asks for the server's own time ask for that of the world."""
        functions = self.query(
            "select pg_get_functiondef(oid) from pg_proc where pronamespace = 'rota'::regnamespace "
            "and prosrc ~ '(statement|clock)_timestamp|pg_postmaster_start_time' "
            "and proname <> 'clock'"
        )
        for (text,) in functions:
            moved = re.sub(r"(pg_catalog\.)?(statement|clock)_timestamp\(\)", "rota.clock()", text)
            started = "current_setting('sim.started')::timestamptz"
            moved = re.sub(r"(pg_catalog\.)?pg_postmaster_start_time\(\)", started, moved)
            self._watch.execute(moved.encode())

    def clean(self) -> None:
        """Forget the world before."""
        self.statements = 0
        self.started = Server.started
        self._watch.execute(f"truncate {self._tables} restart identity".encode())
        for table in FILLED:
            self._watch.execute(f"insert into rota.{table} table sim.{table}".encode())
        self._ears.execute("unlisten *")
        list(self._ears.notifies(timeout=0))

    def query(self, text: str, *params: Any) -> list[Any]:
        """Ask for what is there, beside the world."""
        return self._watch.execute(text.encode(), params).fetchall()

    def listen(self, channel: str) -> None:
        self._ears.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))

    def hear(self) -> Iterator[tuple[str, str]]:
        """Yield what was notified since the last call, by channel and payload."""
        self._ears.execute("select 1")  # what was committed before has been signalled
        for notification in self._ears.notifies(timeout=0):
            yield notification.channel, notification.payload

    started = "2026-01-01 00:00+00"
    """Since when the server is up, by the world's clock."""

    def lend(self, seed: float) -> Session:
        """Lend a session, whose random() begins with a seed."""
        session = self._idle.pop() if self._idle else Session(self.url)
        session.connection.execute("select setseed(%s)", [seed])
        session.started, session.now = self.started, ""
        return session

    def take_back(self, session: Session) -> None:
        """Take a session back, whatever it was doing. One that waits for a lock goes on waiting, as
        a server does that has not noticed that its client is gone."""
        if session not in self._waiting:
            session.reset()
            self._idle.append(session)

    async def run(
        self, session: Session, now: str, call: Callable[[psycopg.Connection[Any]], Any]
    ) -> Any:
        """Run a call on a session, and wait for it if it waits for a lock. Raises its error."""
        self.statements += 1
        running = session.pool.submit(session.run, now, call)
        if self._finish(session, running):
            self._settle()
            return running.result()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[session] = running, answer
        return await answer

    def cancel(self, session: Session) -> None:
        """Cancel what waits, as a client asks the server to."""
        if session in self._waiting:
            session.connection.cancel()
            running, _ = self._waiting[session]
            with suppress(Exception):
                running.result()
            self._settle()

    def _finish(self, session: Session, running: Future[Any]) -> bool:
        """Whether a statement has ended; otherwise it waits for a lock."""
        while True:
            try:
                running.exception(LOOK_S)
            except StillRunning:
                if self._is_blocked(session):
                    return False
            else:
                return True

    def _is_blocked(self, session: Session) -> bool:
        asked = "select cardinality(pg_blocking_pids(%s)) > 0"
        return bool(self._watch.execute(asked, [session.pid]).fetchall()[0][0])

    def _settle(self) -> None:
        """Give answers to those that wait no longer."""
        for session, (running, answer) in list(self._waiting.items()):
            if self._finish(session, running):
                del self._waiting[session]
                if answer.cancelled():
                    self.take_back(session)
                elif (error := running.exception()) is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(running.result())

    def release(self) -> None:
        """End whatever waits: the world is over."""
        for session, (running, _) in self._waiting.items():
            session.connection.cancel()
            with suppress(Exception):
                running.result()
            self._idle.append(session)
        self._waiting.clear()
        for session in self._idle:
            session.reset()

    def close(self) -> None:
        self.release()
        for session in self._idle:
            session.close()
        self._watch.close()
        self._ears.close()
