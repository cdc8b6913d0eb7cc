"""PgBouncer in transaction mode, in front of a test's server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

SERVER_CONNECTIONS = 2
"""Far fewer than clients, so that nearly every statement meets another session than the one before.
"""

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {server_connections}
max_client_conn = 200
logfile =
{more}
pidfile =
"""


def program() -> str | None:
    """Where PgBouncer is installed; Debian puts it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


class Pooler:
    """`with Pooler(server, log_file) as pooler: connect(pooler.url("db"))`; `more` are further
    settings.
    """

    def __init__(self, server: PostgresServer, log: Path, more: str = "") -> None:
        self.port = unused_port()
        self._server = server
        self._log = log
        self._more = more
        self._place = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=server.place))
        self._place.chmod(0o755)

    def url(self, dbname: str) -> str:
        """Where a database is found through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def __enter__(self) -> Self:
        found = program()
        assert found is not None
        settings = self._place / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                server_port=self._server.port,
                port=self.port,
                server_connections=SERVER_CONNECTIONS,
                more=self._more,
            )
        )
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to be root
            as_user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [found, str(settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **as_user
            )
        eventually(self._answers, what="PgBouncer listens")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
