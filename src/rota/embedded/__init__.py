"""A private PostgreSQL under a directory, shared by all processes there, and stopped by the last.

`guard` counts the users, and stops the server if all of them were killed. `server` starts it.
`account` chooses the operating system's user that it runs as.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rota.embedded import guard, server
from rota.errors import EmbeddedError

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("rota")

_TRANSITION_S = 300.0
"""Seconds to wait for other processes that start or stop the server."""
_GUARD_S = 60.0
_LEAVE_S = 5.0
"""Seconds that a process waits at its end for others that stop the server, and for the guard."""
_POLL_S = 0.01
SESSION_VARIABLE = "ROTA_SESSION"
"""The session of a process whose parent has set this: it was started in a session of its own."""
_SESSIONS = "sessions"
_SESSIONS_MAX = 50
"""The number of an older session may come again; nobody has more terminals."""

_in_process = threading.RLock()
_used: dict[Path, int] = {}
"""The directories that this process uses, each with the descriptor that holds its lock."""


def start(directory: Path | None = None) -> str:
    """Return the URL of the directory's PostgreSQL, which runs at least as long as this process.

    Creates and starts it if needed. Defaults to `.rota` in the working directory. Safe to call
    again, from many processes at once and in a forked child. The first call in a terminal session
    logs one warning that names the directory; so does each start by cron or a supervisor.

    Raises:
        EmbeddedError: the wheel is missing, this is Windows, `ROTA_ENV` is `production`, or
            PostgreSQL does not start.
    """
    directory = _resolve(directory)
    _refuse_production()
    binaries = server.postgres_binaries()
    with _in_process, _os_errors_of(directory):
        if guard.is_open_on(_used.get(directory, -1), directory / guard.USERS) and (
            url := server.url(directory)
        ):
            return url
        _make_directory(directory)
        with guard.alone(directory, _TRANSITION_S):
            _join(directory)
            try:
                _ensure_guard(directory)
                url = server.url(directory) or server.launch(directory, binaries)
            except BaseException:
                os.close(_used.pop(directory))
                raise
            is_news = _note_session(directory)
    if is_news:
        logger.warning(
            "using a private PostgreSQL in %s, which stops with the last process that uses it; "
            "set ROTA_DATABASE_URL to use a real one",
            directory,
        )
    return url


def running(directory: Path | None = None) -> str | None:
    """Return the URL of the directory's PostgreSQL, without becoming its user; None: it is down."""
    directory = _resolve(directory)
    with _os_errors_of(directory):
        return server.url(directory)


def stop(directory: Path | None = None) -> bool:
    """Stop the directory's PostgreSQL now, even if other processes use it. Return False if it is
    down.

    Raises:
        EmbeddedError: it runs where this process cannot reach it, such as in another container.
    """
    directory = _resolve(directory)
    if not (directory / guard.TRANSITION).exists():  # nothing was ever started here
        return False
    with _in_process, _os_errors_of(directory), guard.alone(directory, _TRANSITION_S):
        return _shut_down(directory)


def reset(directory: Path | None = None) -> bool:
    """Stop the directory's PostgreSQL and delete its data. Return False if there was none."""
    directory = _resolve(directory)
    if not (directory / guard.TRANSITION).exists():  # nothing was ever started here
        return False
    with _in_process, _os_errors_of(directory), guard.alone(directory, _TRANSITION_S):
        _shut_down(directory)
        data = directory / guard.DATA
        existed = (data / "PG_VERSION").exists()
        if existed:  # otherwise the directory is not ours
            shutil.rmtree(data)
            (directory / _SESSIONS).unlink(missing_ok=True)
        return existed


def _note_session(directory: Path) -> bool:
    """Note that this session uses the directory; return whether that is new."""
    session = os.environ.get(SESSION_VARIABLE) or str(os.getsid(0))
    path = directory / _SESSIONS
    known = path.read_text().split() if path.exists() else []
    if session in known:
        return False
    path.write_text(" ".join([*known[1 - _SESSIONS_MAX :], session]))
    return True


def _resolve(directory: Path | None) -> Path:
    return (Path.cwd() / ".rota" if directory is None else directory).resolve()


def _refuse_production() -> None:
    if os.environ.get("ROTA_ENV") == "production":
        raise EmbeddedError(
            "the private PostgreSQL never starts with ROTA_ENV=production; set ROTA_DATABASE_URL"
        )


@contextlib.contextmanager
def _os_errors_of(directory: Path) -> Iterator[None]:
    """Name the directory in an error of the operating system, and say whose it may be."""
    try:
        yield
    except PermissionError as error:
        raise EmbeddedError(
            f"the private PostgreSQL in {directory} or its directory belongs to another user: "
            f"{error}"
        ) from error
    except OSError as error:
        raise EmbeddedError(f"the private PostgreSQL in {directory}: {error}") from error


def _make_directory(directory: Path) -> None:
    if not directory.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Root's server runs as another user, who must be able to pass through.
        directory.chmod(0o711 if os.geteuid() == 0 else 0o700)
    if not any(directory.iterdir()):
        (directory / ".gitignore").write_text("*\n")


def _join(directory: Path) -> None:
    users = _used.get(directory, -1)
    # The first use; or the descriptor was closed or the directory deleted behind our back.
    if not guard.is_open_on(users, directory / guard.USERS):
        _used[directory] = guard.join(directory)


def _ensure_guard(directory: Path) -> None:
    """Start the guard unless it runs. Its lock is held before; `guard.log` has its errors."""
    lock = guard.open_lock(directory / guard.GUARD)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not sys.executable or getattr(sys, "frozen", False):
            raise subprocess.SubprocessError(
                "this program has no Python interpreter to run it with"
            )
        with server.open_log(directory / "guard.log") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", guard.__file__, str(directory), str(lock)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock,),
                start_new_session=True, cwd="/", env=server.environment(), check=True,
                timeout=_GUARD_S,
            )  # fmt: skip
    except BlockingIOError:
        pass  # a guard is running
    except subprocess.SubprocessError as error:
        logger.warning(
            "no guard for the private PostgreSQL: if its users are killed, stop it with `rota db "
            "stop` "
            "(%s)",
            error,
        )
    finally:
        os.close(lock)  # closed, not unlocked: the guard has a copy


def _shut_down(directory: Path) -> bool:
    stopped = guard.shut_down(directory)
    if not stopped and server.url(directory):
        raise EmbeddedError(
            f"the private PostgreSQL in {directory} runs in another container: stop it there"
        )
    return stopped


@atexit.register
def _leave() -> None:
    """Stop the servers of which this process is the last user, so that no command leaves a server.

    A forked child may run this too. Its parent holds a copy of the lock, so the child is the last
    user only if it is alone.
    """
    for directory in list(_used):
        users = _used.pop(directory)
        if guard.is_open_on(users, directory / guard.USERS):
            os.close(users)  # closed, not unlocked: that would unlock for forked children
            with contextlib.suppress(OSError):  # the guard or the next start stops it then
                _stop_if_unused(directory)


def _stop_if_unused(directory: Path) -> None:
    deadline = time.monotonic() + _LEAVE_S
    while time.monotonic() < deadline:
        with guard.alone(directory, _LEAVE_S):
            if not guard.is_unused(directory):
                return
            guard.shut_down(directory)
            if not guard.has_guard(directory):
                return
        time.sleep(_POLL_S)


# No fork in the middle of a start: the child would keep a copy of its locks.
if sys.platform != "win32":
    os.register_at_fork(
        before=_in_process.acquire,
        after_in_parent=_in_process.release,
        after_in_child=_in_process.release,
    )
