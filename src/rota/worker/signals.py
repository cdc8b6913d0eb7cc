"""What stops a worker from outside: signals and the parent process."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rota.runtime import supervised
from rota.runtime.child_process import handled, is_hang_up_ignored
from rota.worker.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The first signal stops a worker, the second stops it now."""


@contextmanager
def handle_signals(worker: Worker, *, signals: bool) -> Iterator[None]:
    """For a block on the worker's loop, let the first signal stop the worker and the second stop it
    now. SIGHUP never stops it now: the kernel and the shell both send it when a terminal closes.
    Nor does a signal with several processes, where systemd signals all of a service: then only the
    parent can. An ignored SIGHUP, as under `nohup`, stays ignored."""
    loop = asyncio.get_running_loop()
    own = supervised.current

    def on_signal() -> None:
        if worker.is_stopping and own is None:
            worker.stop_now()
        else:
            worker.stop()

    # Only the main thread receives signals.
    is_main = threading.current_thread() is threading.main_thread()
    handlers = dict.fromkeys(SIGNALS, on_signal) if signals and is_main else {}
    if handlers and not is_hang_up_ignored():
        handlers[signal.SIGHUP] = worker.stop
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
        handled.add(number)
    try:
        with nullcontext() if own is None else own.command(worker, loop):
            yield
    finally:
        for number in handlers:
            handled.discard(number)
            loop.remove_signal_handler(number)
