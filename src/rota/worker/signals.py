"""What stops a worker: signals, the parent process, and a time limit."""

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
    now. SIGHUP stops it too, but never now: the kernel and the shell both send SIGHUP when a
    terminal closes, and systemd may send it beside SIGTERM. An ignored SIGHUP, as under `nohup`,
    stays ignored.

    With several processes, only the parent can stop a worker now. systemd signals all processes of
    a service, so each hears of the stop twice: directly and through the parent.
    """
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


@contextmanager
def stop_after(worker: Worker, after_s: float | None) -> Iterator[None]:
    """For a block on the worker's loop, stop the worker after `after_s`; None: do nothing."""
    timer = None
    if after_s is not None:
        timer = asyncio.get_running_loop().call_later(after_s, worker.stop)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
