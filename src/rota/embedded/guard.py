"""Who uses the private PostgreSQL of a directory, and the process that stops it after the last
user.

Four files of the directory are locked with flock, which the kernel releases however a process ends:

- `users`: shared, by every process that uses the server, for its whole life (forked children
  included);
- `transition`: exclusive, by a process that starts or stops the server, joins its users or checks
  that there are none;
- `server`: exclusive, by the server and its sessions, which may outlive it for a moment;
- `guard`: exclusive, by the guard for its whole life.

This file uses only the standard library: the guard runs it by its path in a bare interpreter.
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
"""The prefix of socket directories that are not the data directory."""

_POLL_S = 0.01
_FAST_STOP_S = 60.0
"""Seconds for a fast shutdown, whose checkpoint may take a while on a slow disk."""
_IMMEDIATE_STOP_S = 10.0
_PID_FILE_S = 5.0
_PID_DIGITS_MAX = 9
"""More digits are no pid anywhere, and overflow the kernel's call."""


def main(directory: Path, guard_lock: int) -> None:
    """Wait until no process uses the directory's server, stop it, and end. The starter passes
    `guard_lock` already held, so that there is no moment without a guard."""
    try:
        while True:
            _wait_for_last_user(directory)
            with alone(directory):
                if is_unused(directory):
                    shut_down(directory)
                    # Before the transition ends: the next starter must not count on this guard.
                    os.close(guard_lock)
                    os._exit(0)  # a free lock then means that no process is left
    except FileNotFoundError:
        return  # the directory was deleted; PostgreSQL notices that itself within a minute


@contextlib.contextmanager
def alone(directory: Path, wait_s: float | None = None) -> Iterator[None]:
    """Hold the directory's `transition` lock. Raises TimeoutError after `wait_s`, if given."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    while True:
        lock = open_lock(directory / TRANSITION)
        try:
            lock_exclusive(lock, deadline)
            # Otherwise the file was deleted during the wait, and its lock means nothing.
            if is_open_on(lock, directory / TRANSITION):
                yield
                return
        finally:
            # Unlocked explicitly: a fork by another thread may hold a copy.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def open_lock(path: Path) -> int:
    """Open a lock file with an open file description of its own, which exec closes."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def lock_exclusive(lock: int, deadline: float | None) -> None:
    """Lock an open file. Raises TimeoutError at the deadline, a monotonic time; None: no limit."""
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
    """Register as a user, while `alone`, until the descriptor and its forked copies are closed."""
    users = open_lock(directory / USERS)
    fcntl.flock(users, fcntl.LOCK_SH)
    return users


def is_unused(directory: Path) -> bool:
    """Whether no process uses the server. The answer holds only while the caller is `alone`."""
    return _is_free(directory / USERS)


def has_guard(directory: Path) -> bool:
    """Whether the server has a guard. Call it while `alone`: it locks the file for a moment."""
    return not _is_free(directory / GUARD)


def has_server(directory: Path) -> bool:
    """Whether a server of the directory, or a session of it, is alive: true even before the process
    becomes PostgreSQL. Call it while `alone`: it locks the file for a moment."""
    return not _is_free(directory / SERVER)


def is_open_on(descriptor: int, path: Path) -> bool:
    """Whether the descriptor is open and its file is still the file at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def pid_file(directory: Path) -> list[str]:
    """Return the lines of `postmaster.pid`: pid, data directory, start, port, socket directory,
    address, memory and state; empty if there is none."""
    try:
        return (
            (directory / DATA / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        )
    except FileNotFoundError:
        return []


def postmaster(directory: Path) -> int | None:
    """Return the pid of the directory's server if it is alive and no other process has that pid."""
    pid = read_pid(pid_file(directory))
    return pid if pid and is_postmaster(pid, directory) else None


def read_pid(lines: list[str]) -> int | None:
    """Return the pid in a pid file; None if it is empty or broken, as after a crash."""
    first = lines[0].strip() if lines else ""
    return (
        int(first)
        if first.isascii() and first.isdigit() and len(first) <= _PID_DIGITS_MAX
        else None
    )


def is_postmaster(pid: int, directory: Path) -> bool:
    """Whether that process is a server on the directory's data. A zombie is not."""
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
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def shut_down(directory: Path) -> bool:
    """Stop the server, gently first. Return False if none runs here. Call it while `alone`."""
    pid = _postmaster_when_known(directory)
    if pid is None:
        return False
    lines = pid_file(directory)  # the server deletes it
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
    """Remove a stopped server's socket directory by its pid file, unless it is the data
    directory."""
    home = Path(lines[4]) if len(lines) > 4 else SOCKET_DIRECTORIES
    if home.parent == SOCKET_DIRECTORIES.parent and home.name.startswith(SOCKET_DIRECTORIES.name):
        shutil.rmtree(home, ignore_errors=True)  # a cleaner of /tmp may have been faster


def _wait_for_last_user(directory: Path) -> None:
    users = os.open(directory / USERS, os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(users, fcntl.LOCK_EX)
    # Not kept: a process that arrives now would wait for this guard, and the guard for it. Whether
    # there is a user is decided again while `alone`.
    os.close(users)


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
    if os.fork():  # forked twice, so that no process has to wait for this one
        os._exit(0)
    main(Path(sys.argv[1]), int(sys.argv[2]))
