"""A PostgreSQL 18 of the benchmark's own, with its default, durable settings.

Each measurement gets a fresh database.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from rota.store.migrate import migrate
from tests.support.server import SETTINGS, PostgresServer

EXIT_S = 0.5
"""A process of the server that is just ending is in no account; a moment later it is in its
parent's."""
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class DurableServer(PostgresServer):
    """The tests' server without their settings; the guard stops it however the benchmark ends."""

    def __init__(self, place: Path, name: str = "bench") -> None:
        super().__init__(place, name, place / f"{name}.log")
        self._databases = 0

    def start(self) -> None:
        """Start it, and refuse to continue if its commits would not be durable."""
        super().start()
        with self.admin() as admin:
            for name in DURABLE:
                row = admin.execute("select current_setting(%s)", [name]).fetchone()
                if row is None or row[0] != "on":
                    raise RuntimeError(f"{name} is not on: the figures would mean nothing")

    def _initialise(self) -> None:
        super()._initialise()
        settings = self.data / "postgresql.conf"
        settings.write_text(settings.read_text().removesuffix(SETTINGS))

    @contextmanager
    def admin(self, dbname: str = "postgres") -> Iterator[psycopg.Connection]:
        """An autocommit connection of the superuser."""
        with psycopg.connect(self.socket_url(dbname), autocommit=True) as connection:
            yield connection

    @contextmanager
    def database(self, *, migrated: bool = True, like: str = "template1") -> Iterator[str]:
        """Yield the URL of a fresh database, a copy of another one, which is dropped afterwards.

        Earlier writes are on disk by then, so that their checkpoint affects no later measurement.
        """
        self._databases += 1
        name = f"bench_{self._databases}"
        with self.admin() as admin:
            names = map(sql.Identifier, (name, like))
            admin.execute(sql.SQL("create database {} template {}").format(*names))
        try:
            if migrated:
                migrate(self.socket_url(name))
            with self.admin() as admin:
                admin.execute("checkpoint")
            yield self.socket_url(name)
        finally:
            with self.admin() as admin:  # another one: the server may have crashed meanwhile
                admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    def cpu_s(self, settle_s: float = EXIT_S) -> float:
        """CPU seconds of all processes that this server has had."""
        time.sleep(settle_s)
        postmaster = psutil.Process(
            int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        )
        times = postmaster.cpu_times()
        total = (
            times.user
            + times.system
            + getattr(times, "children_user", 0.0)
            + getattr(times, "children_system", 0.0)
        )
        for process in postmaster.children():
            try:
                own = process.cpu_times()
            except psutil.NoSuchProcess:
                # It has ended, and counts among the postmaster's dead children from the next call
                # on.
                continue
            total += own.user + own.system
        return float(total)

    def facts(self) -> dict[str, Any]:
        """Return the settings that the figures depend on."""
        with self.admin() as admin:
            version = admin.execute("select version()").fetchone()
            changed = admin.execute(
                "select name, setting from pg_settings where source in ('configuration file', "
                "'command line') and name !~ '^lc_|director|_file$' order by 1"
            ).fetchall()
            durable = admin.execute(
                "select name, setting from pg_settings where name = any (%s) order by 1",
                [list(DURABLE)],
            ).fetchall()
        return {
            "version": version and version[0],
            "durable": dict(durable),
            "settings": dict(changed),
            "file_system": _file_system(self.data),
        }


def with_options(url: str, options: str) -> str:
    """Return the URL with startup options."""
    return f"{url}&options={quote(options)}"


def value(connection: psycopg.Connection, statement: str, *params: Any) -> Any:
    """Return the single value of a statement."""
    row = connection.execute(statement.encode(), params).fetchone()
    return None if row is None else row[0]


def _file_system(path: Path) -> str:
    mounted = [
        part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)
    ]
    return max(mounted, key=lambda part: len(part.mountpoint)).fstype if mounted else "unknown"
