"""Where a system keeps its jobs for one turn: a database of the one PostgreSQL, or a Redis."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from bench.peers.system import Rows
from bench.server import EXIT_S, DurableServer, value
from tests.support.server import unused_port

REDIS = "redis-server"
START_S = 30
BACKENDS = "select pid from pg_stat_activity where datname = %s"
COLUMNS = """
select attname
from pg_attribute
where attrelid = %s::regclass and attnum > 0 and not attisdropped and attgenerated = ''
  and attname <> all (%s)
order by attnum"""


class Store(ABC):
    """What the scenarios ask of it."""

    url: str

    @abstractmethod
    @contextmanager
    def count(self, statement: str) -> Iterator[Callable[[], int]]:
        """Yield a function that returns the number that a statement returns."""

    @abstractmethod
    def cpu_s(self, settle_s: float = EXIT_S) -> float:
        """CPU seconds of all processes that the server has had."""

    @abstractmethod
    def own_cpu_s(self) -> float:
        """CPU seconds of the server's processes that serve this store alone."""

    @abstractmethod
    def restart(self) -> None:
        """Stop the server at once, as after a power cut, and start it again."""

    @abstractmethod
    def statements(self) -> int:
        """How many statements clients have sent since `count_statements`."""

    def count_statements(self) -> None:  # noqa: B027 - Redis always counts
        """Count the statements of connections that begin from now on."""

    def log_bytes(self) -> int | None:
        """How much the server has written to its log ahead of the data; None without one."""
        return None

    @abstractmethod
    def size_bytes(self) -> int:
        """How much room it takes."""

    def settle(self) -> None:  # noqa: B027 - Redis has nothing to do
        """Do what autovacuum would have done by then."""


class Database(Store):
    """A database of the server."""

    def __init__(self, server: DurableServer, name: str) -> None:
        self.url = server.url(name)
        self._server = server
        self._name = name
        self._log_from = 0

    @contextmanager
    def count(self, statement: str) -> Iterator[Callable[[], int]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield lambda: int(value(connection, statement))

    def cpu_s(self, settle_s: float = EXIT_S) -> float:
        return self._server.cpu_s(settle_s)

    def own_cpu_s(self) -> float:
        with self._server.admin() as admin:
            rows = admin.execute(BACKENDS, [self._name]).fetchall()
        return sum(map(_cpu_s, (pid for (pid,) in rows)))

    def restart(self) -> None:
        self._server.restart("immediate")

    def count_statements(self) -> None:
        with self._server.admin() as admin:
            name = sql.Identifier(self._name)
            admin.execute(sql.SQL("alter database {} set log_statement to 'all'").format(name))
        self._log_from = self._server.log.stat().st_size

    def statements(self) -> int:
        mark = f" {self._name} LOG:  ".encode()
        with self._server.log.open("rb") as log:
            log.seek(self._log_from)
            texts = [line.partition(mark)[2] for line in log if mark in line]
        return sum(text.startswith((b"statement:", b"execute ")) for text in texts)

    def log_bytes(self) -> int | None:
        with self._server.admin() as admin:
            return int(value(admin, "select pg_current_wal_lsn() - '0/0'"))

    def size_bytes(self) -> int:
        with self._server.admin() as admin:
            return int(value(admin, "select pg_database_size(%s)", self._name))

    def settle(self) -> None:
        with self._server.admin(self._name) as admin:
            admin.execute("vacuum (analyze)")
            admin.execute("checkpoint")

    def multiply(self, rows: Rows, jobs: int) -> None:
        """Copy the one row of a table until it has so many."""
        new = {name: text for name, text in rows.keys.items() if text}
        with self._server.admin(self._name) as admin:
            found = admin.execute(COLUMNS, [rows.table, [*rows.keys]]).fetchall()
            names = [f'"{name}"' for (name,) in found]
            into, read = ", ".join([*names, *new]), ", ".join([*names, *new.values()])
            text = f"insert into {rows.table} ({into}) select {read} from {rows.table}, "
            admin.execute(f"{text} generate_series(2, {jobs}) as copy".encode())


class Redis(Store):
    """A Redis of this turn alone, with the settings that it has by default."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._port = unused_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> Redis:
        self._place.mkdir()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        shutil.rmtree(self._place, ignore_errors=True)

    def _start(self) -> None:
        given = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._place)]
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(shutil.which(REDIS)), *given],
                cwd=self._place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_S
        while True:
            try:
                self.ask("PING")
            except (OSError, RuntimeError):  # it loads its data: LOADING
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.01)
            else:
                return

    def _kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def ask(self, *words: str) -> str:
        """Send a command; return its reply, a number or a text."""
        with self._connect() as connection:
            return _ask(connection, words)

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), START_S)

    @contextmanager
    def count(self, statement: str) -> Iterator[Callable[[], int]]:
        """The statement is a script in Lua."""
        with self._connect() as connection:
            yield lambda: int(_ask(connection, ("EVAL", statement, "0")))

    def cpu_s(self, settle_s: float = EXIT_S) -> float:
        return self.own_cpu_s()

    def own_cpu_s(self) -> float:
        return _cpu_s(self._process.pid) if self._process is not None else 0.0

    def restart(self) -> None:
        self._kill()
        self._start()

    def statements(self) -> int:
        return self._info("total_commands_processed")

    def size_bytes(self) -> int:
        return self._info("used_memory")

    def _info(self, name: str) -> int:
        lines = dict(line.split(":", 1) for line in self.ask("INFO").splitlines() if ":" in line)
        return int(lines[name])


def _ask(connection: socket.socket, words: tuple[str, ...]) -> str:
    parts = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
    connection.sendall("".join(parts).encode())
    with connection.makefile("rb") as replies:
        head = replies.readline().decode().rstrip()
        if head.startswith("$"):
            return replies.read(int(head[1:])).decode()
    if head.startswith((":", "+")):
        return head[1:]
    raise RuntimeError(f"Redis answered: {head}")


def _cpu_s(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        children = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return float(times.user + times.system + children)
    return 0.0
