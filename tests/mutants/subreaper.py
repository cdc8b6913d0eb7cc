"""Runs one command and ends whatever it leaves behind: `python -m tests.mutants.subreaper`.

A mutated run may start a process that nothing ends, because the guard that would end it is the one
that was removed. Such a process would use a core for hours. On Linux every orphan below this
process becomes its child, so all that is left can be found by descent, whatever its session.

It ends the command early when its time is over, or when `make mutants` is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.guard import PLACE, stop_servers

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OVER_TIME = 124
"""The status if the time of the command is over, as `timeout` has it."""
KILL_S = 10.0
"""Longest wait for the end of what was killed: in an uninterruptible sleep it may take for ever."""


def main() -> int:
    """`seconds command…`: return the status of the command."""
    seconds, *command = sys.argv[1:]
    if sys.platform == "linux":
        for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(OVER_TIME))
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    try:
        return _run(command)
    finally:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if PLACE in os.environ:  # a server that is killed leaves its shared memory behind
            stop_servers(Path(os.environ[PLACE]), "own-*")
        _kill_descendants()


def _run(command: list[str]) -> int:
    """Run a command. Its orphans are reaped meanwhile, as process 1 does it: its tests wait for
    that.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def _kill_descendants() -> None:
    until = time.monotonic() + KILL_S
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
