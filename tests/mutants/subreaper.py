"""Runs one command and ends whatever it leaves behind: `python -m tests.mutants.subreaper`.

A mutated run may start a process that nothing ends, because the guard that would end it is the one
that was removed. Such a process would use a core for hours. On Linux every orphan below this
process becomes its child, so all that is left can be found by descent, whatever its session.

It ends the command early when its time is over, or when stdin ends: then `make mutants` is gone.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from tests.support.guard import PLACE, stop_servers

PR_SET_CHILD_SUBREAPER = 36
LEAVE_S = 10.0
"""Time for what is left to end by itself, as the process does that stops the servers of a run."""
KILL_S = 10.0
"""Longest wait for the end of what was killed: in an uninterruptible sleep it may take for ever."""
LOOK_EVERY_S = 0.05
LINE_MAX = 100
"""Characters of a command line that are reported."""


class Ended(msgspec.Struct):
    """How a command ended."""

    status: int
    """As `Popen.returncode` has it."""
    is_over_time: bool
    killed: list[str]
    """The command lines of what it left behind and did not end by itself."""


def main() -> None:
    """`limit_s leave_s command…`: print how the command ended on stdout.

    All that the command prints goes to stderr.
    """
    limit_s, leave_s, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    status, is_over_time = _run(command, float(limit_s))
    if PLACE in os.environ:  # a server that is killed leaves its shared memory behind
        stop_servers(Path(os.environ[PLACE]), "own-*")
    ended = Ended(status, is_over_time, _end_descendants(float(leave_s)))
    sys.stdout.write(msgspec.json.encode(ended).decode())


def _run(command: list[str], limit_s: float) -> tuple[int, bool]:
    """Run a command; return its status, and whether its time was over.

    Its orphans are reaped meanwhile, as process 1 would reap them: its tests wait for that.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    over = threading.Event()

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def stop_over_time() -> None:
        over.set()
        stop()

    def stop_with_caller() -> None:
        while os.read(0, 1):
            pass
        stop()

    timer = threading.Timer(limit_s, stop_over_time)
    timer.start()
    threading.Thread(target=stop_with_caller, daemon=True).start()
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, over.is_set()


def _end_descendants(leave_s: float) -> list[str]:
    """Wait until no descendant of this process is left; kill those that stay longer than `leave_s`,
    and return their command lines."""
    killed: dict[psutil.Process, str] = {}
    began_at = time.monotonic()
    while (left := _find_descendants()) and time.monotonic() < began_at + leave_s + KILL_S:
        if time.monotonic() >= began_at + leave_s:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    killed.setdefault(process, shlex.join(process.cmdline())[:LINE_MAX])
                    process.kill()
        time.sleep(LOOK_EVERY_S)
    return list(killed.values())


def _find_descendants() -> list[psutil.Process]:
    """Return all below this process, those that have ended reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)


if __name__ == "__main__":
    main()
