"""The place where the servers of one test run live, and the process that clears it up, however the
run ends.

The run holds a lock on a file of that place and the kernel lets go of it, also after a SIGKILL. The
guard waits for exactly that, then stops every server found there and removes the place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STOP_S = 30
PLACE = "ROTA_TESTS_PLACE"
"""The environment variable with the place of a run that another process began and will end.

`make mutants` lets many runs have one server after the other.
"""
MEMORY = "/dev/shm"
ROOM_BYTES = 4 * 2**30
"""The databases of a whole run, most of it for those with a million rows, and their log."""


class Run:
    """One `pytest` command, seen from the process that controls it."""

    def __init__(self, within: str | None = None) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rota-tests-", dir=within or in_memory()))
        self.place.chmod(0o755)  # the servers of a run by root belong to another user
        starting_lock(self.place).touch()
        self._alive = _alive_lock(self.place).open("w")
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        # A session of its own: Ctrl-C is for the run, and the guard must outlive it.
        self._guard = subprocess.Popen(
            [sys.executable, __file__, str(self.place)], start_new_session=True
        )

    def end(self) -> None:
        """Let the guard do its work, and wait for it."""
        self._alive.close()
        self._guard.wait(2 * STOP_S)


def forget_databases() -> None:
    """Take out of the environment what leads to a database in use: tests, benchmarks and chaos have
    servers of their own only."""
    for name in [*os.environ]:
        if name.startswith(("ROTA_", "PG")) or name == "DATABASE_URL":
            del os.environ[name]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this name against the other processes of the run."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def starting_lock(place: Path) -> Path:
    """Held while a server is started, so that the guard cannot overlook one."""
    return place / "starting.lock"


def in_memory() -> str | None:
    """Where files are made and removed ten times faster than on a disk; None, without room for it
    or where TMPDIR says another place.
    """
    import psutil

    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return None
    can_run = not room.f_flag & os.ST_NOEXEC  # the server's programs may have to be copied there
    enough = (
        room.f_bavail * room.f_frsize >= ROOM_BYTES
        and psutil.virtual_memory().available >= 2 * ROOM_BYTES
    )
    return (
        MEMORY
        if can_run and enough and os.access(MEMORY, os.W_OK) and "TMPDIR" not in os.environ
        else None
    )


def stop_servers(place: Path, names: str = "*") -> None:
    """Stop the servers of these names, whatever left them, and remove their files."""
    for pid_file in place.glob(f"{names}/data/postmaster.pid"):
        _stop(pid_file)
    for directory in place.glob(f"{names}/data"):
        shutil.rmtree(directory.parent)


def measure_servers(place: Path) -> float:
    """Return the seconds of CPU that the servers which run here have used, with their sessions."""
    import psutil

    used_s = 0.0
    for pid_file in place.glob("*/data/postmaster.pid"):
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(int(pid_file.read_text().split("\n", 1)[0]))
            used_s += sum(server.cpu_times()[:4])
            used_s += sum(sum(session.cpu_times()[:2]) for session in server.children())
    return used_s


def _alive_lock(place: Path) -> Path:
    return place / "alive.lock"


def _clear_up_after(place: Path) -> None:
    with locked(_alive_lock(place)), locked(starting_lock(place)):
        stop_servers(place)
        shutil.rmtree(place)


def _stop(pid_file: Path) -> None:
    import psutil  # here, because the guard of most runs has nothing to stop

    try:
        server = psutil.Process(int(pid_file.read_text().split("\n", 1)[0]))
        if str(pid_file.parent) in server.cmdline():  # otherwise the pid was reused
            os.kill(server.pid, signal.SIGQUIT)
            server.wait(STOP_S)
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        pass


if __name__ == "__main__":
    _clear_up_after(Path(sys.argv[1]))
