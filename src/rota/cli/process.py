"""The process of a command: its streams and signals at the start, and its end in bounded time."""

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
"""How long threads that go on may keep a process whose command is done."""


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
    """As process 1 of a container, go on in a fork. Process 1 passes signals on, reaps orphans, and
    ends as the fork does.

    A worker cannot reap them itself: it does not know them from what a handler has started, and the
    exit status of that is the handler's.
    """
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
        # What a terminal sends has reached the fork, too: twice would end the grace period.
        if came.si_signo != signal.SIGCHLD and came.si_code <= 0:
            os.kill(command, came.si_signo)
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def leave(status: int) -> None:
    """Let Python end the process, and end it with `status` if threads still run after LEAVE_S.

    Python waits without a limit for threads that are no daemons, and for those of a
    ThreadPoolExecutor. One call that hangs would keep a worker that its supervisor is to replace.
    """
    if threading.active_count() == 1:
        return
    timer = threading.Timer(LEAVE_S, _leave_now, [status])
    timer.daemon = True
    timer.start()
    # Python calls these once all threads have ended. They take the time that they need.
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
    """Open what is closed of the descriptors 0, 1 and 2 on /dev/null.

    A connection to the database would take the free number, and get what is printed there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
