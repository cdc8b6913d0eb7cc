"""The real server of a simulated world. One statement runs at a time, at a moment of virtual time;
one that waits for a lock waits, and others go on."""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from types import coroutine
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from rota.store.drivers.psycopg3 import ERRORS, AsyncPsycopgDriver

LOOK_S = 0.003
"""Real seconds after which a statement that runs is asked whether it waits for a lock. A server
that sees a deadlock has said so by then."""
CLOCK = """create or replace function rota.clock() returns timestamptz language sql stable
  parallel safe return coalesce(
    nullif(pg_catalog.current_setting('sim.now', true), ''), '2026-01-14 09:00+00'
  )::timestamptz;
  create or replace function rota.moment() returns timestamptz language sql return rota.clock()"""
NOTIFY = """create or replace function sim.notify(p_channel text, p_payload text) returns void
  language plpgsql as $$ begin
    raise notice 'sim';
    perform pg_notify(p_channel, p_payload);
  end $$"""
REFUSE = """create or replace function sim.refuse() returns trigger language plpgsql as $$ begin
    if exists (select from sim.refused where id = old.id) then
      raise exception 'job % is refused', old.id using errcode = 'check_violation';
    end if;
    return coalesce(new, old);
  end $$;
  create table sim.refused (id bigint);
  create table sim.ledger (job bigint, claim int);
  create trigger sim_refuse before update or delete on rota.job
    for each row execute function sim.refuse()"""
MOVED = {
    r"(pg_catalog\.)?(statement|clock)_timestamp\(\)": "rota.clock()",
    r"(pg_catalog\.)?pg_postmaster_start_time\(\)": "current_setting('sim.started')::timestamptz",
    r"(pg_catalog\.)?pg_notify\(": "sim.notify(",
    r"SET lock_timeout TO '\d+ms'": "SET lock_timeout TO '1ms'",
    r"set_config\('lock_timeout', \w+ \|\| 'ms'": "set_config('lock_timeout', '1ms'",
}
"""What asks the server itself, and what asks the world in its place. A function that waits for a
lock for milliseconds does not get it: meanwhile no virtual time passes."""
SETTINGS = (
    "-c timezone=UTC -c jit=off -c deadlock_timeout=1ms -c lock_timeout=0 -c statement_timeout=0 "
    "-c synchronous_commit=off -c max_parallel_workers_per_gather=0"
)
KEPT = "'definition', 'migration', 'schema_version'"
FILLED = ("installation", "alert_rule")
"""Tables that have rows in a new database."""

Call = Callable[[AsyncPsycopgDriver], Awaitable[Any]]
"""What is asked of the server by one statement."""


class Session(psycopg.AsyncConnection[Any]):
    """A session of the server, lent to one simulated connection at a time."""

    @classmethod
    def open(cls, server: Server) -> Session:
        made = pq.PGconn.connect(make_conninfo(server.url, options=SETTINGS).encode())
        made.nonblocking = 1
        session = cls(made)
        session._autocommit = True
        session.prepare_threshold = 0
        session.server = server
        session.driver = AsyncPsycopgDriver(session)
        session.now = ""
        session.has_notified = session.is_late = False
        session.add_notice_handler(session._hear)
        return session

    server: Server
    driver: AsyncPsycopgDriver
    now: str
    has_notified: bool
    """Whether what it did may have notified somebody."""
    is_late: bool
    """Whether it has waited for a lock as long as it may."""

    @property
    def is_over(self) -> bool:
        """Whether its transaction has ended."""
        return self.pgconn.transaction_status != pq.TransactionStatus.INTRANS

    def _hear(self, notice: Any) -> None:
        self.has_notified = True

    async def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        """Wait for the server; where that waits for a lock, let others go on."""
        try:
            wanted = next(gen)
            while True:
                while not (ready := self.look(wanted)):
                    while self.server.is_blocked(self):
                        await _let_others_go_on()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def look(self, wanted: int, for_s: float = LOOK_S) -> int:
        socket = [self.pgconn.socket]
        able = select.select(socket * (wanted & 1), socket * (wanted >> 1), (), for_s)
        return bool(able[0]) + 2 * bool(able[1])

    def say(self, text: str) -> None:
        self.pgconn.exec_(text.encode())


@coroutine
def _let_others_go_on() -> Generator[None]:
    yield


def _move(text: str) -> str:
    for there, here in MOVED.items():
        text = re.sub(there, here, text)
    return text


class Server:
    """The server, with one database for one world after the other."""

    started = "2026-01-01 00:00+00"
    """Since when the server is up, by the world's clock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._watch = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._watch.execute("create schema if not exists sim")
        self._watch.execute(CLOCK, prepare=False)
        self._watch.execute(NOTIFY)
        self._watch.execute(REFUSE, prepare=False)
        self._let_functions_ask_the_world()
        self._ears = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._idle: list[Session] = []
        self._lent: set[Session] = set()
        self._waiting: dict[Session, tuple[Coroutine[Any, Any, Any], asyncio.Future[Any]]] = {}
        self._tables = self._watch.execute(
            "select string_agg(format('%I.%I', 'rota', relname), ', ') from pg_class "
            "where relnamespace = 'rota'::regnamespace and relkind in ('r', 'p') "
            f"and not relispartition and relname not in ({KEPT})".encode()
        ).fetchall()[0][0]
        for table in FILLED:
            self._watch.execute(
                f"create table if not exists sim.{table} as table rota.{table}".encode()
            )
        self.statements = 0

    def _let_functions_ask_the_world(self) -> None:
        functions = self.query(
            "select pg_get_functiondef(oid) from pg_proc "
            "where pronamespace = 'rota'::regnamespace and proname <> 'clock'"
        )
        for (text,) in functions:
            if (moved := _move(text)) != text:
                self._watch.execute(moved.encode())

    def clean(self) -> None:
        """Forget the world before."""
        self.statements = 0
        self.started = Server.started
        tables = f"{self._tables}, sim.refused, sim.ledger"
        self._watch.execute(f"truncate {tables} restart identity".encode())
        for table in FILLED:
            self._watch.execute(f"insert into rota.{table} table sim.{table}".encode())
        self._ears.execute("unlisten *")
        list(self._ears.notifies(timeout=0))

    def query(self, text: str, *params: Any) -> list[Any]:
        """Ask for what is there, beside the world."""
        return self._watch.execute(text.encode(), params or None).fetchall()

    def refuse(self, job: int | None) -> None:
        """Let nobody change the row of a job; None: of none any more."""
        if job is None:
            self._watch.execute("delete from sim.refused")
        else:
            self._watch.execute("insert into sim.refused values (%s)", [job])

    def delete(self, job: int) -> bool:
        """Delete a job that waits by hand; return whether it was there."""
        text = (
            "delete from rota.job where id = (select id from rota.job where id = %s "
            "and batch is null and idempotency_key is null and status in ('queued', 'failed') "
            "for update skip locked) returning id"
        )
        return bool(self.query(text, job))

    def be_copy(self, *, is_copy: bool) -> None:
        """Let the installation name another database, or this one again."""
        name = "'another'" if is_copy else "current_database()"
        self._watch.execute(f"update rota.installation set database_name = {name}".encode())

    def listen(self, channel: str) -> None:
        self._ears.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))

    def hear(self) -> Iterator[tuple[str, str]]:
        """Yield what was notified since the last call, by channel and payload."""
        self._ears.execute("select 1")  # what was committed before has been signalled
        for notification in self._ears.notifies(timeout=0):
            yield notification.channel, notification.payload

    def lend(self, seed: float) -> Session:
        """Lend a session, whose random() begins with a seed."""
        session = self._idle.pop() if self._idle else Session.open(self)
        self._lent.add(session)
        session.say(f"select setseed({seed}); set sim.started = '{self.started}'")
        session.now = ""
        return session

    def take_back(self, session: Session) -> None:
        """Take a session back, whatever it was doing. One that waits for a lock goes on waiting, as
        a server does that has not noticed that its client is gone."""
        if session not in self._waiting:
            session.say("rollback; reset all; select pg_advisory_unlock_all()")
            self._lent.remove(session)
            self._idle.append(session)

    async def run(self, session: Session, now: str, call: Call, waits_s: float) -> Any:
        """Run a call on a session, and wait for it if it waits for a lock, so long at most (0: for
        ever). Raises its error."""
        self.statements += 1
        if now != session.now:
            session.say(f"set sim.now = '{now}'")
            session.now = now
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting[session] = call(session.driver), answer  # type: ignore[assignment]
        self._settle(session)
        timer = loop.call_later(waits_s, self._time_out, session) if waits_s else None
        try:
            return await answer
        except psycopg.errors.QueryCanceled as error:
            if session.is_late:
                raise psycopg.errors.LockNotAvailable(str(error)) from error
            raise
        finally:
            session.is_late = False
            if timer is not None:
                timer.cancel()

    def _time_out(self, session: Session) -> None:
        session.is_late = session in self._waiting
        self.cancel(session)

    def cancel(self, session: Session) -> None:
        """Cancel what waits, as a client asks the server to."""
        if session in self._waiting:
            session.pgconn.get_cancel().cancel()
            session.look(1, 60)
            self._settle(session)

    def is_blocked(self, session: Session) -> bool:
        """Whether it waits for a lock, and has done so for longer than a function may."""
        asked = (
            "select from pg_locks where pid = %s and not granted "
            "and waitstart < clock_timestamp() - interval '30 ms'"
        )
        return bool(self.query(asked, session.pgconn.backend_pid))

    def _settle(self, session: Session) -> None:
        """Go on with a statement, and then with the others, the oldest first, as the server does,
        until all that are left wait for locks."""
        self._goes_on(session)
        while sum(map(self._goes_on, list(self._waiting))):
            pass  # one that ended may have let others go on

    def _goes_on(self, session: Session) -> bool:
        """Whether a statement has ended: its answer is known."""
        call, answer = self._waiting[session]
        try:
            call.send(None)
        except StopIteration as end:
            self._answer(session, answer.set_result, end.value)
        except ERRORS as error:
            self._answer(session, answer.set_exception, error)
        else:
            return False
        return True

    def _answer(self, session: Session, give: Callable[[Any], None], what: Any) -> None:
        _, answer = self._waiting.pop(session)
        if answer.cancelled():
            self.take_back(session)
        else:
            give(what)

    def release(self) -> None:
        """End whatever waits, or is on its way to or from a client: the world is over."""
        for session in self._lent:
            session.pgconn.get_cancel().cancel()
            session.pgconn.finish()
        for call, _ in self._waiting.values():
            call.close()
        self._lent.clear()
        self._waiting.clear()

    def close(self) -> None:
        self.release()
        for session in self._idle:
            session.pgconn.finish()
        self._watch.close()
        self._ears.close()
