"""Who uses the private PostgreSQL of a directory, and the process that stops it after the last of them.

Four files of the directory are locked with flock, which the kernel releases however a process ends:

- `users`: shared, by every process that uses the server, for as long as it lives (forked children included);
- `transition`: exclusive, by whoever starts or stops the server, joins its users or finds out that there are none;
- `server`: exclusive, by the server and its sessions, also when the server was killed and they go on for a moment;
- `guard`: exclusive, by the guard for as long as it lives.

Only the standard library here, and nothing of Rota: the guard runs this file by its path in a bare interpreter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

DATA = "data"
USERS = "users.lock"
TRANSITION = "transition.lock"
SERVER = "server.lock"
GUARD = "guard.lock"
SOCKET_DIRECTORIES = Path("/tmp/rota-socket-")
"""How the paths of socket directories begin that are not the data directory itself."""

_POLL_S = 0.01
_FAST_STOP_S = 60.0  # a fast shutdown writes a checkpoint, which takes a while after a bulk load on a slow disk
_IMMEDIATE_STOP_S = 10.0
_PID_FILE_S = 5.0
_PID_DIGITS_MAX = 9  # more are no pid anywhere, and too many for the kernel's call


def main(directory: Path, guard_lock: int) -> None:
    """Wait until nobody uses the directory's server, stop it, and end.

    `guard_lock` is inherited from the starter with the lock already on it, so that there is no moment without a guard.
    """
    try:
        while True:
            _wait_for_last_user(directory)
            with alone(directory):
                if is_unused(directory):
                    shut_down(directory)
                    os.close(
                        guard_lock
                    )  # before the transition ends: the next starter must not count on this guard
                    os._exit(0)  # whoever sees the lock free may say that no process is left
    except FileNotFoundError:
        return  # the directory was deleted; PostgreSQL notices that by itself within a minute


@contextlib.contextmanager
def alone(directory: Path, wait_s: float | None = None) -> Iterator[None]:
    """Hold the directory's `transition` lock. Raises TimeoutError after `wait_s` seconds; None waits for ever."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    while True:
        lock = open_lock(directory / TRANSITION)
        try:
            lock_exclusive(lock, deadline)
            if is_open_on(
                lock, directory / TRANSITION
            ):  # else the file was deleted while this waited, and locks nothing
                yield
                return
        finally:
            # Unlocked by word: closing alone would leave it locked if another thread forked meanwhile.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def open_lock(path: Path) -> int:
    """Open a lock file of its own open file description, which exec closes."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def lock_exclusive(lock: int, deadline: float | None) -> None:
    """Lock an open file. Raises TimeoutError at the deadline, a time of the monotonic clock; None waits for ever."""
    if deadline is None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "another process has been starting, stopping or running it all the time"
                ) from None
            time.sleep(_POLL_S)


def join(directory: Path) -> int:
    """Register as a user until the returned descriptor and its copies in forked children are closed. Call it while `alone`."""
    users = open_lock(directory / USERS)
    fcntl.flock(users, fcntl.LOCK_SH)
    return users


def is_unused(directory: Path) -> bool:
    """Whether no process uses the directory's server. It stays so only while the caller is `alone`."""
    return _is_free(directory / USERS)


def has_guard(directory: Path) -> bool:
    """Whether a guard watches over the directory's server. Call it while `alone`: looking locks the file for a moment."""
    return not _is_free(directory / GUARD)


def has_server(directory: Path) -> bool:
    """Whether a server of the directory, or a session of it, is alive, from before its process is PostgreSQL's. Call it while `alone`, as above."""
    return not _is_free(directory / SERVER)


def is_open_on(descriptor: int, path: Path) -> bool:
    """Whether the descriptor is open and its file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def pid_file(directory: Path) -> list[str]:
    """The lines of `postmaster.pid`: pid, data directory, start, port, socket directory, address, memory, state; or none."""
    try:
        return (
            (directory / DATA / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        )
    except FileNotFoundError:
        return []


def postmaster(directory: Path) -> int | None:
    """The pid of the directory's server, if the one in its pid file is alive and not a stranger with the same number."""
    pid = read_pid(pid_file(directory))
    return pid if pid and is_postmaster(pid, directory) else None


def read_pid(lines: list[str]) -> int | None:
    """The pid that a pid file names; None where it is empty or holds something else, as after a crash of the machine."""
    first = lines[0].strip() if lines else ""
    return (
        int(first)
        if first.isascii() and first.isdigit() and len(first) <= _PID_DIGITS_MAX
        else None
    )


def is_postmaster(pid: int, directory: Path) -> bool:
    """Whether that process runs on the directory's data. A zombie does not."""
    data = os.fsencode(directory / DATA)
    if Path("/proc/self/cmdline").exists():
        try:
            return data in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
    shown = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], stdout=subprocess.PIPE, check=False
    ).stdout
    return b" -D " + data + b" " in shown


def is_alive(pid: int) -> bool:
    """Whether some process has that pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def shut_down(directory: Path) -> bool:
    """Stop the directory's server, gently first. False if it was not running (here). Call it while `alone`."""
    pid = _postmaster_when_known(directory)
    if pid is None:
        return False
    lines = pid_file(directory)  # it will be gone
    for stop, patience_s in (
        (signal.SIGINT, _FAST_STOP_S),
        (signal.SIGQUIT, _IMMEDIATE_STOP_S),
        (signal.SIGKILL, _IMMEDIATE_STOP_S),
    ):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, stop)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not is_postmaster(pid, directory):
                remove_socket_directory(lines)
                return True
            time.sleep(_POLL_S)
    raise TimeoutError(f"PostgreSQL (process {pid}) does not stop, not even when killed")


def _postmaster_when_known(directory: Path) -> int | None:
    """Wait for the pid file of a server whose starter was killed a moment ago."""
    deadline = time.monotonic() + _PID_FILE_S
    while (
        (pid := postmaster(directory)) is None
        and has_server(directory)
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_S)
    return pid


def remove_socket_directory(lines: list[str]) -> None:
    """Remove the socket directory that a stopped server's pid file names, unless it was the data directory."""
    home = Path(lines[4]) if len(lines) > 4 else SOCKET_DIRECTORIES
    if home.parent == SOCKET_DIRECTORIES.parent and home.name.startswith(SOCKET_DIRECTORIES.name):
        shutil.rmtree(home, ignore_errors=True)  # whoever clears /tmp may have been faster


def _wait_for_last_user(directory: Path) -> None:
    users = os.open(directory / USERS, os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(users, fcntl.LOCK_EX)
    os.close(
        users
    )  # decided anew while `alone`: who arrives in between would otherwise wait for a guard that waits for them


def _is_free(path: Path) -> bool:
    lock = open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        fcntl.flock(lock, fcntl.LOCK_UN)
        return True
    finally:
        os.close(lock)


if __name__ == "__main__":
    if os.fork():  # detached twice, so that nobody's child is left to be waited for
        os._exit(0)
    main(Path(sys.argv[1]), int(sys.argv[2]))
