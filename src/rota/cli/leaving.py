"""The end of the process: in bounded time, whatever handlers have left behind in it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from contextlib import suppress

logger = logging.getLogger("rota")

LEAVE_S = 3.0
"""How long threads of the application that run on may keep a process whose work is done."""


def leave(status: int) -> None:
    """Let the process end with `status` soon. Python waits for threads that are no daemons, and for those of a ThreadPoolExecutor, as long as they
    run: a call that hangs would keep it for ever, and whoever supervises it would start no other."""
    if threading.active_count() == 1:
        return
    timer = threading.Timer(LEAVE_S, _leave_at_once, [status])
    timer.daemon = True
    timer.start()
    atexit.register(
        timer.cancel
    )  # these run when the threads have ended, and take the time that they take


def _leave_at_once(status: int) -> None:
    ours = threading.main_thread(), threading.current_thread()
    names = [
        thread.name
        for thread in threading.enumerate()
        if thread not in ours and not thread.name.startswith("rota-")
    ]
    logger.error("threads that do not end were left behind: %s", ", ".join(names))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed
            stream.flush()
    os._exit(status)
