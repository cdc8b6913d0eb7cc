"""The process of a command: its streams and signals at the start, and its end within a limit."""

from __future__ import annotations

import atexit
import gc
import io
import logging
import os
import signal
import sys
import threading
from contextlib import suppress

from rota.runtime.child_process import SIGNALS, find_exited

logger = logging.getLogger("rota")

LEAVE_S = 3.0
"""Longest time that running threads may keep the process of a finished command."""


def prepare() -> None:
    """Prepare the process for a command. Call it once, before anything is opened."""
    gc.freeze()  # what was imported stays to the end: Python would walk over it there, twice
    _open_standard_descriptors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A customer's name must not end a command in an encoding that lacks one of its letters.
        sys.stdout.reconfigure(errors="backslashreplace")
    if os.getpid() == 1:
        # The kernel ends pid 1 by no signal without a handler. A worker installs its own.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def fork_from_init() -> None:
    """In process 1 of a container, continue in a fork. Process 1 passes signals on, reaps orphans,
    and ends with the fork's status. A worker cannot reap: it cannot tell orphans from a handler's
    processes, whose exit statuses belong to the handler."""
    if os.getpid() != 1:
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, signal.SIGCHLD))
    command = os.fork()
    if command == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # only the kernel's process 1 needs more
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would leave no status
    while find_exited({command}) is None:
        came = signal.sigwaitinfo((*SIGNALS, signal.SIGCHLD))
        # A terminal's signal has reached the fork too: a second one would end the grace period.
        if came.si_signo != signal.SIGCHLD and came.si_code <= 0:
            os.kill(command, came.si_signo)
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def leave(status: int) -> None:
    """Let Python end the process; end it with `status` if threads still run after LEAVE_S. Python
    itself waits without a limit: one hanging call would keep a worker that its supervisor is to
    replace."""
    if threading.active_count() == 1:
        return
    timer = threading.Timer(LEAVE_S, _leave_now, [status])
    timer.daemon = True
    timer.start()
    # Python calls these functions once all threads have ended. They take the time that they need.
    atexit.register(timer.cancel)


def _leave_now(status: int) -> None:
    ours = threading.main_thread(), threading.current_thread()
    names = [
        thread.name
        for thread in threading.enumerate()
        if thread not in ours and not thread.name.startswith("rota-")
    ]
    logger.error("threads that do not end were left behind: %s", ", ".join(names))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a closed or full stream must not keep the process
            stream.flush()
    os._exit(status)


def _open_standard_descriptors() -> None:
    """Open closed descriptors among 0, 1 and 2 on /dev/null: otherwise a connection to the database
    would take the free number, and get printed text."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
